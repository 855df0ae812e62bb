"""Feed damaged bytes to the checked kernels, to codecs, and to the reader of whole files.

    python tests/kernels/fuzz.py --seconds 60 [--seed N]

Allowed is a value or an error of the right kind; a fault ends the run, which then tells the case.
Every batch has random numbers of its own, so that ``--replay KIND:NUMBER`` does it once more.
"""

import argparse
import faulthandler
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import checked

HANGS_AFTER = 120  # seconds: a batch takes a part of one


@dataclass
class Outcome:
    """What a run of the fuzzer found: how many inputs of which kind, or what went wrong."""

    seed: int
    counts: dict[str, int]
    seconds: float
    fault: str = ""

    def __str__(self) -> str:
        done = sum(n for name, n in self.counts.items() if name not in ("payloads", "files"))
        lines = [f"{name:24} {n:10}" for name, n in sorted(self.counts.items())]
        lines.append(f"seed {self.seed}: {done} calls of kernels in {self.seconds:.1f} s of work")
        return "\n".join([*lines, self.fault])


def fuzz(module: Path, seconds: float, seed: int, kinds: str = "kernels,payloads,files") -> Outcome:
    """Run the fuzzer on a checked module in a process of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        at = Path(scratch) / "case"
        options = ["--seconds", str(seconds), "--seed", str(seed), "--kinds", kinds]
        done = _run(module, at, options)
        if done.returncode == 0:
            found = json.loads(done.stdout.splitlines()[-1])
            return Outcome(seed, found["counts"], found["seconds"])
        batch = at.read_text() if at.exists() else "none: it did not come so far"
        fault = [f"FAULT in batch {batch}", done.stderr[:4000]]
        if at.exists():
            _run(module, at, ["--seed", str(seed), "--replay", batch])
            fault += [f"the case: {at.read_text()}"]
            fault += [f"again: python tests/kernels/fuzz.py --seed {seed} --replay {batch}"]
        return Outcome(seed, {}, seconds, "\n".join(fault))


def _run(module: Path, at: Path, options: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, __file__, "--work", str(at), *options],
        env=checked.environment(module),
        capture_output=True,
        text=True,
        check=False,
    )


def work(at: Path, seconds: float, seed: int, kinds: list[str], replayed: str | None) -> None:
    """Do batches until the time is over; before each, write to a file which it is."""
    checked.use_checked()
    import batches

    faulthandler.enable()
    start, counts = time.process_time(), Counter[str]()
    sources = batches.sources(kinds if replayed is None else [replayed.split(":")[0]])
    if replayed is not None:
        kind, number = replayed.split(":")
        sources[kind].run(seed, int(number), at)
        return
    ends, number = time.monotonic() + seconds, 0
    while time.monotonic() < ends:
        for kind, source in sources.items():
            at.write_text(f"{kind}:{number}")
            faulthandler.dump_traceback_later(HANGS_AFTER, exit=True)
            counts += source.run(seed, number, None)
        number += 1
    faulthandler.cancel_dump_traceback_later()
    print(json.dumps({"counts": counts, "seconds": time.process_time() - start}))


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "little"))
    parser.add_argument("--kinds", default="kernels,payloads,files")
    parser.add_argument("--replay", help="a batch, as KIND:NUMBER")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        work(asked.work, asked.seconds, asked.seed, asked.kinds.split(","), asked.replay)
        return 0
    module = checked.build()
    if asked.replay:
        at = Path(tempfile.mkdtemp()) / "case"
        done = _run(module, at, ["--seed", str(asked.seed), "--replay", asked.replay])
        print(done.stderr, f"the last case: {at.read_text()}", sep="\n")
        return done.returncode
    outcome = fuzz(module, asked.seconds, asked.seed, asked.kinds)
    print(outcome)
    return 1 if outcome.fault else 0


if __name__ == "__main__":
    sys.exit(main())
