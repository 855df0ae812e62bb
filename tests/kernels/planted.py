"""Bugs to plant in copies of the kernels: the fuzzer must find each.

python tests/kernels/planted.py [NAME …]
"""

import sys
import time
from dataclasses import dataclass

import checked
from fuzz import fuzz

SECONDS = 60  # to find one in; most take a second of work


@dataclass(frozen=True)
class Planted:
    """A text of a source file, and the wrong one that takes its place."""

    file: str
    right: str
    wrong: str


BUGS = {
    "bits behind the data": Planted(
        "bits.h", "i64 byte = min64(position >> 3, in.size - 8);", "i64 byte = position >> 3;"
    ),
    "a refill behind the data": Planted(
        "bits.h", "stream + minu(position >> 3, limit)", "stream + (position >> 3)"
    ),
    "a round of decoding too many": Planted(
        "huffman_runs.h",
        "minu((part - furthest) / (MOST_AT_ONCE * LOOKS),",
        "minu((part - furthest) / (MOST_AT_ONCE * LOOKS) + 1,",
    ),
    "a gap beyond the mask": Planted("gaps.c", "        if (at >= n) return BEYOND;\n", ""),
    "escapes without end": Planted(
        "ans_decoder.inc", "if (taken < r->escaped->size) out[i]", "out[i]"
    ),
    "a run beyond the array": Planted(
        "sparse.inc", "length < 1 || length > n - start", "length < 1"
    ),
    "planes of another size": Planted(
        "bitpack.c", "    if (bytes != arg[0].size) return bytes;\n", ""
    ),
    "a sign too many": Planted("sparse.inc", "(W)signs[min64(k, last)]", "(W)signs[k]"),
}


def find(name: str, seconds: float = SECONDS) -> tuple[str, float]:
    """Build the kernels with a bug; return the fuzzer's report, empty if none, and its seconds."""
    bug = BUGS[name]
    # Without UBSan, which takes as long to build again, and finds no access out of bounds.
    module = checked.build({(bug.file, bug.right): bug.wrong}, "address")
    start = time.monotonic()
    return fuzz(module, seconds, 1, "kernels").fault, time.monotonic() - start


def main() -> int:
    """Look for the bugs that the command line names, or all."""
    missed = []
    for name in sys.argv[1:] or BUGS:
        report, seconds = find(name)
        print(f"{name}: {'found' if report else 'MISSED'} in {seconds:.1f} s", flush=True)
        missed += [] if report else [name]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
