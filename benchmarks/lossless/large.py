"""Time and memory of compressing and restoring files from 0.1 to 4 GB: both must stay flat.

Each file has one tensor of half its size among smaller ones, bf16 with the spread of trained
weights. Memory is the highest anonymous resident size (Linux), sampled from outside: mapped file
pages, which the system takes back when it needs them, do not count.

    python -m benchmarks.lossless.large [--sizes 0.1,1,4] [--folder DIR]
"""

import hashlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import ml_dtypes
import numpy as np
import typer

from benchmarks.common.machine import anonymous_bytes
from benchmarks.common.reporting import Columns, Found, JsonPath, Markdown, Sheet, report
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


def digest(path: Path) -> str:
    """Return a file's SHA-256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class LargeRow:
    """A file's size in GB, ratio, seconds and highest memory in bytes, and whether it is equal."""

    size: float
    ratio: float
    packing: float
    packing_peak: int
    unpacking: float
    unpacking_peak: int
    equal: bool


def measured(size: float, folder: Path | None) -> LargeRow:
    """Compress and restore a file of so many GB."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        source = Path(scratch, "model.safetensors")
        packed, restored = Path(scratch, "m.tc.safetensors"), Path(scratch, "r.safetensors")
        write_checkpoint(source, int(size * 1e9))
        packing = run("compress", str(source), "-o", str(packed))
        unpacking = run("decompress", str(packed), "-o", str(restored))
        ratio = source.stat().st_size / packed.stat().st_size
        return LargeRow(size, ratio, *packing, *unpacking, digest(source) == digest(restored))


def large_sheet(rows: Iterable[LargeRow]) -> Sheet:
    """Tabulate time and memory by size."""
    columns: Columns = {
        "GB": lambda row: f"{row.size:g}",
        "ratio": lambda row: f"{row.ratio:.3f}",
        "compress s/GB": lambda row: f"{row.packing / row.size:.2f}",
        "compress, peak MB": lambda row: f"{row.packing_peak / 1e6:.0f}",
        "decompress s/GB": lambda row: f"{row.unpacking / row.size:.2f}",
        "decompress, peak MB": lambda row: f"{row.unpacking_peak / 1e6:.0f}",
        "equal SHA-256": lambda row: "yes" if row.equal else "NO",
    }
    return Sheet.of("File to file, bf16, one tensor of half the file's size", rows, columns)


def main(
    sizes: Annotated[str, typer.Option(help="GB, separated by commas.")] = "0.1,1,4",
    folder: Annotated[Path | None, typer.Option(help="Where the files go for a while.")] = None,
    json_path: JsonPath = None,
    markdown: Markdown = False,
) -> None:
    """Print a table with a row for each size."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    rows = [measured(size, folder) for size in map(float, sizes.split(","))]
    found = Found([large_sheet(rows)], rows={"large": rows})
    report(found, ("tensorcomp",), markdown=markdown, json_path=json_path)


if __name__ == "__main__":
    typer.run(main)
