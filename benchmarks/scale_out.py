"""Compress a folder by several processes: serial, parts, executors, workers that are killed.

    python -m benchmarks.scale_out [--rounds 3] [--markdown]

Six shards of bfloat16, 277 MB together. Each way must write the files that one process writes. The
overhead is its wall time beside that of one process on one thread. Starting the
workers of an executor is not in it; what they import is. Parts are two processes at once, started
anew. A worker is killed as soon as two shards are done.
"""

import contextlib
import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import ml_dtypes
import numpy as np
import typer
from safetensors.numpy import save_file

import tensorcomp
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

SHARDS, TENSORS, ROWS, COLUMNS = 6, 11, 2048, 1024
MOST_OVERHEAD = 6.0  # seconds
WORKERS = 2


@dataclass(frozen=True)
class Done:
    """Medians of one way to compress."""

    way: str
    starting: float
    seconds: float
    overhead: float


def make_model(folder: Path) -> Path:
    """Write shards of normal weights, each layer of another scale."""
    generator = np.random.default_rng(0)
    folder.mkdir()
    for shard in range(SHARDS):
        weights = {}
        for index in range(TENSORS):
            values = generator.standard_normal((ROWS, COLUMNS), np.float32) * 0.02
            weights[f"layers.{shard * TENSORS + index}.w"] = values.astype(ml_dtypes.bfloat16)
        save_file(weights, folder / f"model-{shard + 1:05}-of-{SHARDS:05}.safetensors")
    return folder


def serial(model: Path, out: Path) -> float:
    """Compress in this process, on one thread; return the seconds of that."""
    return tensorcomp.compress(model, out, threads=1).seconds


def parts(model: Path, out: Path) -> float:
    """Compress two parts at once by the command line, and merge them."""
    begun = time.perf_counter()
    command = [sys.executable, "-m", "tensorcomp", "compress", str(model), "-o", str(out)]
    running = [
        subprocess.Popen(
            [*command, "--threads", "1", "--part", f"{number}/{WORKERS}"],
            stdout=subprocess.DEVNULL,
        )
        for number in range(WORKERS)
    ]
    for process in running:
        process.wait()
    if any(process.returncode for process in running):
        raise RuntimeError("a part has failed")
    tensorcomp.merge(model, out)
    return time.perf_counter() - begun


@contextlib.contextmanager
def pool() -> Iterator[tuple[Executor, Callable[[], list[int]]]]:
    """Yield a pool of spawned processes, and what returns their numbers."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(WORKERS, mp_context=context) as executor:
        yield executor, lambda: list(executor._processes or ())


@contextlib.contextmanager
def dask() -> Iterator[tuple[Executor, Callable[[], list[int]]]]:
    """Yield the workers of a local Dask cluster, and what returns their numbers."""
    import distributed

    with (
        distributed.LocalCluster(
            n_workers=WORKERS,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            memory_limit=0,
        ) as cluster,
        distributed.Client(cluster) as client,
        client.get_executor(pure=False) as executor,
    ):
        yield executor, lambda: list(client.run(os.getpid).values())


def on(workers: Callable[[], Any], model: Path, out: Path, *, killed: bool = False) -> float:
    """Compress on an executor; kill a worker when two shards are done."""
    with workers() as (executor, processes):
        if killed:
            reports = out.with_name(f"{out.name}.partial") / "reports"

            def kill() -> None:
                while len(list(reports.glob("*.json"))) < 2:
                    time.sleep(0.02)
                os.kill(processes()[0], signal.SIGKILL)

            threading.Thread(target=kill, daemon=True).start()
        return tensorcomp.compress(model, out, executor=executor).seconds


WAYS: dict[str, Callable[[Path, Path], float]] = {
    "one process": serial,
    "two parts, merged": parts,
    "ProcessPoolExecutor(2), spawned": functools.partial(on, pool),
    "… one worker killed": functools.partial(on, pool, killed=True),
    "Dask, two processes": functools.partial(on, dask),
    "…, one worker killed": functools.partial(on, dask, killed=True),
}
CELLS: Columns = {
    "way": lambda row: row.way,
    "starting workers, s": lambda row: number(row.starting, 2),
    "compressing, s": lambda row: number(row.seconds, 2),
    "beside one process, s": lambda row: number(row.overhead, 2),
}


def main(
    rounds: Annotated[int, typer.Option(help="Times each way is run.")] = 3,
    *,
    markdown: Markdown = False,
    json_path: JsonPath = None,
) -> None:
    """Measure the time of each way to compress six shards."""
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as scratch:
        model = make_model(Path(scratch) / "m")
        wanted: dict[str, bytes] = {}
        for turn in range(rounds):
            for index, (way, run) in enumerate(WAYS.items()):
                out = Path(scratch) / f"{index}-{turn}"
                begun = time.perf_counter()
                seconds = run(model, out)
                found[way].append((time.perf_counter() - begun - seconds, seconds))
                note(f"{way}: {seconds:.2f} s")
                files = {path.name: path.read_bytes() for path in out.iterdir()}
                wanted = wanted or files
                if files != wanted:
                    raise ValueError(f"{way}: other files than one process writes")
                for path in out.iterdir():
                    path.unlink()
    middle = {way: tuple(map(median, zip(*runs, strict=True))) for way, runs in found.items()}
    first = middle["one process"][1]
    rows = [Done(way, *times, times[1] - first) for way, times in middle.items()]
    limits = [Limit(f"overhead of {row.way}, s", row.overhead, MOST_OVERHEAD) for row in rows[1:]]
    sheets = [Sheet.of("Compress six shards, 277 MB", rows, CELLS)]
    about = {"runs": f"{rounds} of each way, in turns; medians. Files equal byte for byte"}
    packages = ("tensorcomp", "distributed", "numpy")
    end(
        Found(sheets, limits, {"ways": rows}),
        packages,
        about,
        markdown=markdown,
        json_path=json_path,
    )


if __name__ == "__main__":
    typer.run(main)
