"""Restore the last of a chain of checkpoints: time and memory at depth 16.

    python -m benchmarks.series.depth FOLDER [--depth 16]

The chain is made: points in equal distances between MiniLM and its 60th step, in bf16, each
compressed against the one before. A restore should take the time of its base and 16 deltas, each as
long as the step from depth 0 to 1 takes, and hold no more than three times the largest tensor.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import numpy as np
import typer

from benchmarks.common.checkpoints import BFLOAT16
from benchmarks.common.machine import anonymous_bytes
from benchmarks.common.reporting import (
    Columns,
    Found,
    JsonPath,
    Limit,
    Markdown,
    Sheet,
    end,
    note,
    number,
)

MOST_TIME, MOST_MEMORY = 1.0, 3.0


@dataclass(frozen=True)
class DepthRow:
    """Restore of one checkpoint of the chain: its file's bytes, seconds and memory in bytes."""

    depth: int
    nbytes: int
    load: float
    restore: float
    peak: int


def write_chain(folder: Path, scratch: Path, depth: int) -> tuple[list[Path], int]:
    """Compress the points of a chain; return their files, and the bytes of the largest tensor."""
    from safetensors.numpy import load_file, save_file

    import tensorcomp

    first, last = (load_file(folder / f"minilm/step_{n:06d}.safetensors") for n in (0, 60))
    files: list[Path] = []
    largest, before = 0, None
    for point in range(depth + 1):
        part = np.float32(point / depth)
        tensors = {
            name: np.ascontiguousarray(value + part * (last[name] - value)).astype(BFLOAT16)
            for name, value in first.items()
        }
        largest = max(value.nbytes for value in tensors.values())
        plain = scratch / f"point-{point:02d}.safetensors"
        save_file(tensors, plain)
        files.append(tensorcomp.compress(plain, base=before).path)
        before = plain
    return files, largest


@contextmanager
def chain(folder: Path, depth: int) -> Iterator[tuple[list[Path], int]]:
    """Make a chain and remove it."""
    with tempfile.TemporaryDirectory() as scratch:
        files, largest = write_chain(folder, Path(scratch), depth)
        for point in Path(scratch).glob("point-??.safetensors"):
            if point.name != "point-00.safetensors":
                expected = point.with_suffix(".expected")
                point.rename(expected)
        Path(scratch, "point-00.safetensors").unlink()
        yield files, largest


def restored(file: Path, rounds: int) -> tuple[float, int]:
    """Return seconds and highest anonymous memory of restoring a file by the command line."""
    out = file.parent / "restored" / "point.safetensors"  # no folder that bases are looked for in
    out.parent.mkdir(exist_ok=True)
    code = "from tensorcomp_cli.entry import run; run()"
    arguments = ["decompress", str(file), "-o", str(out), "--force"]
    seconds, peak = [], 0
    for _ in range(rounds):
        begun = time.perf_counter()
        process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE)
        while process.poll() is None:
            peak = max(peak, anonymous_bytes(process.pid))
            time.sleep(0.002)
        if process.returncode:
            raise SystemExit(f"restoring {file.name} failed with status {process.returncode}")
        seconds.append(time.perf_counter() - begun)
    expected = file.with_name(file.name.replace(".tc.safetensors", ".expected"))
    if expected.exists() and out.read_bytes() != expected.read_bytes():
        raise SystemExit(f"{file.name} was not restored")
    return median(seconds), peak


def loaded(file: Path) -> float:
    """Return the seconds of loading a file to memory."""
    import tensorcomp

    begun = time.perf_counter()
    tensors = tensorcomp.load_file(file)
    taken = time.perf_counter() - begun
    del tensors
    return taken


COLUMNS: Columns = {
    "depth": lambda row: f"{row.depth}",
    "bytes": lambda row: f"{row.nbytes:,}",
    "load, ms": lambda row: number(1e3 * row.load, 0),
    "decompress, ms": lambda row: number(1e3 * row.restore, 0),
    "memory, MB": lambda row: number(row.peak / 1e6, 0),
}


def main(
    folder: Annotated[Path, typer.Argument(help="Where `benchmarks.series.data` wrote.")],
    depth: Annotated[int, typer.Option(min=1, help="Files that the last one needs.")] = 16,
    rounds: Annotated[int, typer.Option(min=1, help="Turns; medians count.")] = 5,
    *,
    markdown: Markdown = False,
    json_path: JsonPath = None,
) -> None:
    """Restore the first, second and last of a chain."""
    note(f"making a chain of {depth + 1} files")
    with chain(folder, depth) as (files, largest):
        tiny = files[0].with_name("tiny.safetensors")
        from safetensors.numpy import save_file

        import tensorcomp

        save_file({"a": np.zeros(4, np.float32)}, tiny)
        _, idle = restored(tensorcomp.compress(tiny).path, 1)
        depths = sorted({0, 1, depth})
        loads: dict[int, list[float]] = {n: [] for n in depths}
        for turn in range(rounds + 1):
            for n in depths:
                seconds = loaded(files[n])
                loads[n] += [seconds] if turn else []
        rows = []
        for n in depths:
            seconds, peak = restored(files[n], rounds)
            rows.append(
                DepthRow(n, files[n].stat().st_size, median(loads[n]), seconds, peak - idle)
            )
    base, one, last = rows[0], rows[1], rows[-1]
    limits = [
        Limit(
            f"load at depth {depth} / (base + {depth} deltas)",
            last.load / (base.load + depth * (one.load - base.load)),
            MOST_TIME,
        ),
        Limit("memory / the largest tensor", last.peak / largest, MOST_MEMORY),
    ]
    about = {
        "rounds": f"median of {rounds}",
        "memory": f"highest anonymous bytes above the {idle / 1e6:.0f} MB for a tiny file",
        "largest tensor": f"{largest / 1e6:.1f} MB",
    }
    found = Found([Sheet.of("Restore from a chain", rows, COLUMNS)], limits, {"depths": rows})
    end(found, ("tensorcomp",), about, markdown=markdown, json_path=json_path)


if __name__ == "__main__":
    typer.run(main)
