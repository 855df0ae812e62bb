"""Time and memory of compressing and restoring files from 0.1 to 4 GB: both must stay flat.

Each file has one tensor of half its size among smaller ones, bf16 with the spread of trained
weights. Memory is the highest anonymous resident size (Linux), sampled from outside: mapped file
pages, which the system takes back when it needs them, do not count.

    python -m benchmarks.lossless.large [--sizes 0.1,1,4] [--folder DIR]
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import ml_dtypes
import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.checkpoints.safetensors.header import build_header

_COLUMNS = 4096
_SMALL_ROWS = 4096  # a tensor of 32 MiB


def tensor_rows(total: int) -> list[int]:
    """Return the rows of each tensor of a file of about so many bytes."""
    rows = total // (2 * _COLUMNS)
    half, rest = rows // 2, rows - rows // 2
    return [half, *[_SMALL_ROWS] * (rest // _SMALL_ROWS), max(rest % _SMALL_ROWS, 1)]


def blocks(rows: int, generator: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield rows of weights whose scale varies from row to row and column to column."""
    column_scale = np.exp(0.3 * generator.standard_normal(_COLUMNS, np.float32))
    while rows > 0:
        count = min(rows, 1024)
        row_scale = np.exp(0.3 * generator.standard_normal((count, 1), np.float32))
        weights = generator.standard_normal((count, _COLUMNS), np.float32)
        yield (0.02 * weights * row_scale * column_scale).astype(ml_dtypes.bfloat16)
        rows -= count


def write_checkpoint(path: Path, total: int) -> None:
    """Write a safetensors file of about so many bytes, as a stream."""
    generator = np.random.default_rng(total)
    rows = tensor_rows(total)
    infos = [
        TensorInfo(f"layers.{i}.weight", "BF16", (r, _COLUMNS), 2 * r * _COLUMNS)
        for i, r in enumerate(rows)
    ]
    with path.open("wb") as file:
        file.write(build_header(infos, {"format": "pt"}))
        for count in rows:
            for block in blocks(count, generator):
                file.write(block.tobytes())


def run(*arguments: str) -> tuple[float, int]:
    """Run the command line and return seconds and the highest anonymous resident bytes."""
    command = [sys.executable, "-c", "from tensorcomp_cli.entry import run; run()", *arguments]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, anonymous_bytes(process.pid))
        time.sleep(0.01)
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed with status {process.returncode}")
    return time.perf_counter() - start, peak


def anonymous_bytes(pid: int) -> int:
    """Return the anonymous resident bytes of a process; 0 once it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def digest(path: Path) -> str:
    """Return a file's SHA-256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(
    sizes: Annotated[str, typer.Option(help="GB, separated by commas.")] = "0.1,1,4",
    folder: Annotated[Path | None, typer.Option(help="Where the files go for a while.")] = None,
) -> None:
    """Print a table with a row for each size."""
    columns = ("GB", "ratio", "compress s/GB", "MB", "decompress s/GB", "MB", "equal SHA-256")
    table = Table(*columns)
    for size in map(float, sizes.split(",")):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            source = Path(scratch, "model.safetensors")
            packed, restored = Path(scratch, "m.tc.safetensors"), Path(scratch, "r.safetensors")
            write_checkpoint(source, int(size * 1e9))
            packing, packing_peak = run("compress", str(source), "-o", str(packed))
            unpacking, unpacking_peak = run("decompress", str(packed), "-o", str(restored))
            table.add_row(
                f"{size:g}",
                f"{source.stat().st_size / packed.stat().st_size:.3f}",
                f"{packing / size:.2f}",
                f"{packing_peak / 1e6:.0f}",
                f"{unpacking / size:.2f}",
                f"{unpacking_peak / 1e6:.0f}",
                "yes" if digest(source) == digest(restored) else "NO",
            )
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
