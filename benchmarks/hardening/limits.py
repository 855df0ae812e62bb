"""Memory, descriptors, threads and processor time of the verbs on checkpoints up to 8 GB.

Three shapes: one tensor; many tensors of 80 kB (100,000 in 8 GB); shards of 4 MB (2,000 in 8 GB).
Weights are bf16, the same random block over and over, each time rotated by another number, so that
no two tensors are equal. Each verb is a process of its own with a limit of 64 descriptors. It is
sampled from outside: anonymous resident memory, its children's included (pages of mapped files are
the system's to take back), descriptors, and threads that are running or ready to run. Linux only.

    python -m benchmarks.hardening.limits --size 8GB --shape many --verbs compress,verify
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import ml_dtypes
import numpy as np
import typer

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
)
from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.checkpoints.safetensors.header import build_header

MEMORY, DESCRIPTORS = 400, 64
_COLUMNS = 512
_TENSOR_ROWS = {"one": 0, "many": 80, "shards": 2048}  # 0: all in one
_TENSORS_A_SHARD = 2
_BLOCK_ROWS = 1 << 14
_INTERVAL = 0.02  # seconds
_UNITS = {"GB": 1e9, "MB": 1e6}
_VERBS = "compress,decompress,verify,compare,prune,bench"


@dataclass(frozen=True)
class LimitRow:
    """What a verb took."""

    shape: str
    size: float
    budget: str
    verb: str
    threads: int
    peak: float
    descriptors: int
    running: int
    cpu_seconds: float
    seconds: float

    @property
    def per_gb(self) -> float:
        """Return the seconds of processor time a GB."""
        return self.cpu_seconds / self.size * 1e9


def write_file(path: Path, first: int, rows: Sequence[int], block: np.ndarray) -> None:
    """Write a safetensors file of tensors of so many rows, numbered from `first`."""
    infos = [
        TensorInfo(f"layers.{first + i}.mlp.weight", "BF16", (r, _COLUMNS), 2 * r * _COLUMNS)
        for i, r in enumerate(rows)
    ]
    with path.open("wb") as file:
        file.write(build_header(infos, {"format": "pt"}))
        for number, count in enumerate(rows, first):
            for done in range(0, count, _BLOCK_ROWS):
                turn = (number * 7919 + done * 31) % block.size
                wanted = min(_BLOCK_ROWS, count - done) * _COLUMNS
                parts = block[turn : turn + wanted], block[: max(turn + wanted - block.size, 0)]
                for part in parts:
                    file.write(part.view(np.uint8).data)


def write_model(folder: Path, shape: str, size: float) -> Path:
    """Write a checkpoint of about so many bytes; return the file or folder."""
    generator = np.random.default_rng(0)
    scales = np.exp(0.3 * generator.standard_normal(_COLUMNS, np.float32))
    block = 0.02 * scales * generator.standard_normal((_BLOCK_ROWS, _COLUMNS), np.float32)
    flat = block.astype(ml_dtypes.bfloat16).reshape(-1)
    rows = max(round(size / 2 / _COLUMNS), 1)
    each = _TENSOR_ROWS[shape] or rows
    tensors = [each] * max(rows // each, 1)
    if shape != "shards":
        write_file(folder / "model.safetensors", 0, tensors, flat)
        return folder / "model.safetensors"
    (model := folder / "model").mkdir()
    count = -(-len(tensors) // _TENSORS_A_SHARD)
    for number in range(count):
        file = model / f"model-{number + 1:05}-of-{count:05}.safetensors"
        own = tensors[number * _TENSORS_A_SHARD :][:_TENSORS_A_SHARD]
        write_file(file, number * _TENSORS_A_SHARD, own, flat)
    return model


def _family(pid: int) -> Iterator[int]:
    """Yield a process and its descendants."""
    yield pid
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in listed.read_text().split():
            yield from _family(int(child))


def _sample(pid: int) -> tuple[int, int, int]:
    """Return anonymous bytes, descriptors and running threads of a process and its children."""
    memory = descriptors = running = 0
    for member in _family(pid):
        memory += anonymous_bytes(member)
        descriptors += sum(1 for _ in Path(f"/proc/{member}/fd").iterdir())
        for stat in Path(f"/proc/{member}/task").glob("*/stat"):
            running += stat.read_text().rpartition(")")[2].split()[0] in "RD"
    return memory, descriptors, running


def run(arguments: Sequence[str]) -> tuple[tuple[int, int, int], float, float]:
    """Run the command line; return the highest samples, processor seconds and seconds."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))

    command = [sys.executable, "-m", "tensorcomp", *arguments]
    begun, highest = time.perf_counter(), (0, 0, 0)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, preexec_fn=limit)
    while True:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        try:
            a, b, c = _sample(process.pid)
            highest = max(highest[0], a), max(highest[1], b), max(highest[2], c)
        except (OSError, ValueError):
            pass  # a thread or the process has just ended
        time.sleep(_INTERVAL)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed with status {process.returncode}")
    return highest, used.ru_utime + used.ru_stime, time.perf_counter() - begun


def measure(
    folder: Path, shape: str, size: float, budget: str, verbs: Sequence[str], threads: int
) -> Iterator[LimitRow]:
    """Run verbs on a checkpoint, each in turn."""
    model = write_model(folder, shape, size)
    end = "" if shape == "shards" else ".tc.safetensors"
    packed, pruned, again = (str(folder / f"{name}{end}") for name in ("packed", "pruned", "again"))
    source, quick = str(model), ["--effort", "fast"]
    arguments = {
        "compress": ["compress", source, "-o", packed, *budget.split(), *(quick if budget else [])],
        "decompress": ["decompress", packed, "-o", again],
        "verify": ["verify", packed],
        "compare": ["compare", source, packed],
        "prune": ["compress", source, "-o", pruned, "--prune", "magnitude", "--sparsity", "0.5"],
        "bench": ["bench", source],
    }
    nbytes = sum(file.stat().st_size for file in folder.rglob("*.safetensors"))
    for verb in verbs:
        highest, cpu, seconds = run([*arguments[verb], "--threads", str(threads)])
        if verb == "decompress" and not budget:
            command = ["diff", "-r", source, again]
            if subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
                raise SystemExit(f"{source}: restored otherwise")
        for left in (Path(again), Path(pruned)):
            shutil.rmtree(left, ignore_errors=True)
            left.unlink(missing_ok=True)
        taken = (highest[0] / 1e6, *highest[1:], cpu, seconds)
        row = LimitRow(shape, nbytes, budget or "lossless", verb, threads, *taken)
        note(
            f"{shape} {nbytes / 1e9:.2f} GB {row.budget} {verb}: {row.peak:.0f} MB, "
            f"{row.descriptors} descriptors, {row.running} of {threads} threads, "
            f"{cpu:.1f} s = {row.per_gb:.2f} s/GB, {seconds:.0f} s"
        )
        yield row


def sheet(rows: Sequence[LimitRow]) -> Sheet:
    """Tabulate what was measured."""
    columns: Columns = {
        "shape": lambda row: row.shape,
        "GB": lambda row: f"{row.size / 1e9:.2g}",
        "budget": lambda row: row.budget,
        "verb": lambda row: row.verb,
        "threads": lambda row: str(row.threads),
        "running at once": lambda row: str(row.running),
        "peak MB": lambda row: f"{row.peak:.0f}",
        "descriptors": lambda row: str(row.descriptors),
        "CPU s/GB": lambda row: f"{row.per_gb:.2f}",
    }
    return Sheet.of("Peak anonymous memory and CPU time of verbs", rows, columns)


def limits_of(rows: Sequence[LimitRow]) -> Iterator[Limit]:
    """Yield the limits, and what came nearest to each."""
    yield Limit("anonymous memory, MB", max(row.peak for row in rows), MEMORY)
    yield Limit("descriptors", max(row.descriptors for row in rows), DESCRIPTORS)
    yield Limit("threads beyond --threads", max(row.running - row.threads for row in rows), 0)


def main(
    size: Annotated[str, typer.Option(help="Sizes, separated by commas.")] = "100MB,1GB",
    shape: Annotated[str, typer.Option(help="one, many, shards.")] = ",".join(_TENSOR_ROWS),
    verbs: Annotated[str, typer.Option(help="Which.")] = _VERBS,
    threads: Annotated[str, typer.Option(help="Numbers of threads.")] = "1,16",
    budget: Annotated[str, typer.Option(help="Options of compress; lossless if none.")] = "",
    folder: Annotated[Path | None, typer.Option(help="Where the files go for a while.")] = None,
    json_path: JsonPath = None,
    markdown: Markdown = False,
) -> None:
    """Print a table with a row for each run."""
    rows: list[LimitRow] = []
    sizes = [float(text[:-2]) * _UNITS[text[-2:].upper()] for text in size.split(",")]
    cases = [(s, n, t) for s in shape.split(",") for n in sizes for t in threads.split(",")]
    for one, nbytes, count in cases:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            rows += measure(Path(scratch), one, nbytes, budget, verbs.split(","), int(count))
    found = Found([sheet(rows)], list(limits_of(rows)), {"verbs": rows})
    end(found, ("tensorcomp",), markdown=markdown, json_path=json_path)


if __name__ == "__main__":
    typer.run(main)
