"""Let disks and files fail under every writer and reader.

    python -m benchmarks.hardening.disks [--scale 0.1] [--seed 1] [--only NAME] [--markdown]

Disks that are full, or fail in each system call in turn; what may not be written or read; files
that are cut short, written to, removed or replaced while they are read; clocks that jump; and two
runs at once. A run may succeed, or end with one line that names a file and what is wrong with it;
what was there, or what takes its place, must be whole, and the next run must succeed.
"""

import contextlib
import ctypes
import itertools
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import torch
import typer

from benchmarks.common.reporting import Found, JsonPath, Limit, Markdown, Sheet, end, note
from benchmarks.hardening.jobs import ALL, WRITERS, Work, Writer
from benchmarks.hardening.kills import ended_well
from benchmarks.hardening.tracing import CHANGES, READS, Ended, calls, inject, run
from tensorcomp.checkpoints.base import Checkpoint

CALLS = 25  # of each job that fail in each way


class Try(NamedTuple):
    """One run: how it ended, and what is wrong with it."""

    ended: Ended
    faults: list[str]


def judged(ended: Ended, job: Writer, folder: Path, *, readable: bool = True) -> Try:
    """Judge how a run ended and what it left; run again if the inputs are as they were."""
    faults, line = [], ended.line
    if ended.status not in (0, 1, 2):
        faults.append(f"ended with status {ended.status}")
    if ended.status and (str(folder) not in line or "\n" in line or "unexpected" in line):
        faults.append(f"says {line!r}")
    if readable:
        try:
            job.check(folder)
        except BaseException as error:  # CheckpointException of torch derives from it alone
            faults.append(f"left what fails: {error!r}")
        faults += ended_well(job, folder)
    return Try(ended, faults)


@contextlib.contextmanager
def _prepared(job: Writer) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="disks-") as name:
        job.prepare(Path(name))
        yield Path(name)


def full(job: Writer, _: random.Random, scale: float) -> Iterator[Try]:
    """Run on a small disk of its own with some free bytes left; only root may mount one."""
    if os.geteuid():
        return
    with tempfile.TemporaryDirectory(prefix="disks-") as name:
        folder = Path(name)
        for free in [0, 4, 16, 40, 64, 100, 150, 200][:: max(round(0.5 / scale), 1)]:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4M", "none", folder], check=True)
            try:
                job.prepare(folder)
                filler = folder / "filler"
                with filler.open("wb") as file:
                    os.posix_fallocate(
                        file.fileno(), 0, shutil.disk_usage(folder).free - (free << 10)
                    )
                ended = run(partial(job.run, folder))
                filler.unlink()
                yield judged(ended, job, folder)
            finally:
                subprocess.run(["umount", "-l", folder], check=True)


def failing(
    error: str, names: Sequence[str], job: Writer, generator: random.Random, scale: float
) -> Iterator[Try]:
    """Let system calls on files of the folder fail, one a run."""
    with _prepared(job) as folder:
        job.run(folder)  # imports
    with _prepared(job) as folder:
        known = calls(partial(job.run, folder), folder, names)
    for call in generator.sample(known, min(max(round(scale * CALLS), 1), len(known))):
        with _prepared(job) as folder:
            ended = run(partial(job.run, folder), *inject(call, f"error={error}"))
            tried = judged(ended, job, folder)
            yield Try(ended, [f"{call}: {fault}" for fault in tried.faults])


def forbidden(folders: int, files: int, job: Writer, *_: object) -> Iterator[Try]:
    """Run as a user who may not write, or read, by these modes of folders and files."""

    def unprivileged(folder: Path) -> None:
        version = (ctypes.c_uint32 * 2)(0x20080522, 0)
        ctypes.CDLL(None).capset(version, (ctypes.c_uint32 * 6)())  # what root may do beyond modes
        job.run(folder)

    with _prepared(job) as folder:
        paths = [folder, *folder.rglob("*")]
        before = {path: path.stat().st_mode for path in paths}
        for path in paths:
            path.chmod(folders if path.is_dir() else files)
        ended = run(partial(unprivileged, folder))
        for path, mode in before.items():
            if path.exists():
                path.chmod(mode)
        yield judged(ended, job, folder)


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 4)


def _write(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\1" * 1000)


def _grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\1" * 100_000)


def _replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes()[::-1])
    other.rename(path)


def changing(change: Work, job: Writer, *_: object) -> Iterator[Try]:
    """Change each file, in its turn, once it is open for reading."""
    for number in itertools.count():
        with _prepared(job) as folder:
            changed = folder / "changed"

            def work(folder: Path = folder, changed: Path = changed, number: int = number) -> None:
                opened, enter = itertools.count(), Checkpoint.__enter__

                def entered(self: Checkpoint) -> Checkpoint:
                    entered = enter(self)
                    if self.path.is_file() and next(opened) == number:
                        changed.write_text(str(self.path))
                        change(self.path)
                    return entered

                Checkpoint.__enter__ = entered  # type: ignore[method-assign, assignment]
                job.run(folder)

            before = _outputs(folder)
            ended = run(work)
            if not changed.exists():
                return
            path = Path(changed.read_text())
            faults = judged(ended, job, folder, readable=False).faults
            if ended.status and path.parent == folder / "m" and before != _outputs(folder):
                faults.append("changed its output")
            yield Try(ended, [f"{path.name}, opened as {number}: {fault}" for fault in faults])


def _outputs(folder: Path) -> dict[Path, bytes]:
    """Return the files beside the model."""
    inputs, unfinished = folder / "m", folder / "out.partial"
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "changed"
        if {inputs, unfinished}.isdisjoint(path.parents)
        if "tensorcomp-" not in str(path.relative_to(folder))
    }


def jumping(job: Writer, *_: object) -> Iterator[Try]:
    """Run on files of other times, by a clock that goes backwards."""
    for seconds in (-1e9, 0, 2**31 - 1, 2**33):

        def work(folder: Path) -> None:
            number = itertools.count()
            time.time = lambda: 1e9 - 3600.0 * next(number)
            job.run(folder)

        with _prepared(job) as folder:
            for path in folder.rglob("*"):
                os.utime(path, (seconds, seconds))
            ended = run(partial(work, folder))
            tried = judged(ended, job, folder)
            yield Try(ended, [*tried.faults, *([ended.line] if ended.status else [])])


def twice(job: Writer, generator: random.Random, scale: float) -> Iterator[Try]:
    """Run two at once; one may be refused."""
    for _ in range(max(round(8 * scale), 1)):
        with _prepared(job) as folder:
            second: list[Ended] = []

            def other(folder: Path = folder, second: list[Ended] = second) -> None:
                time.sleep(generator.uniform(0, 0.05))
                second.append(run(partial(job.run, folder)))

            first = run(partial(job.run, folder), meanwhile=other)
            ended = max(first, *second, key=lambda ended: abs(ended.status))
            tried = judged(ended, job, folder)
            both = [f"both refused: {first}, {second}"] if first.status and second[0].status else []
            yield Try(ended, [*tried.faults, *both])


FAULTS: dict[str, tuple[Callable[..., Iterator[Try]], dict[str, Writer]]] = {
    "full disk": (full, WRITERS),
    "ENOSPC in each call": (partial(failing, "ENOSPC", CHANGES), WRITERS),
    "EIO in each call that changes": (partial(failing, "EIO", CHANGES), WRITERS),
    "EIO in each call that reads": (partial(failing, "EIO", READS), ALL),
    "read-only folders": (partial(forbidden, 0o555, 0o644), ALL),
    "read-only files and folders": (partial(forbidden, 0o555, 0o444), ALL),
    "unreadable files": (partial(forbidden, 0o777, 0o000), ALL),
    "cut short while read": (partial(changing, _cut), ALL),
    "written while read": (partial(changing, _write), ALL),
    "appended to while read": (partial(changing, _grow), ALL),
    "replaced while read": (partial(changing, _replace), ALL),
    "removed while read": (partial(changing, os.unlink), ALL),
    "clock jumps": (jumping, ALL),
    "two runs at once": (twice, ALL),
}


def main(
    scale: Annotated[float, typer.Option(help="Share of the calls, sizes and pairs.")] = 1.0,
    seed: int = 1,
    only: Annotated[str, typer.Option(help="Faults and jobs whose names hold this.")] = "",
    json_path: JsonPath = None,
    markdown: Markdown = False,
) -> None:
    """Let everything fail and print a table; end with status 1 if anything was found."""
    torch.set_num_threads(1)
    generator = random.Random(seed)
    rows, bad = [], 0
    for fault, (tries, jobs) in FAULTS.items():
        statuses, found = [], 0
        for name, job in jobs.items():
            for tried in tries(job, generator, scale) if only in f"{fault}, {name}" else ():
                statuses.append(tried.ended.status)
                found += bool(tried.faults)
                for text in tried.faults:
                    note(f"{fault}, {name}: {text}")
        if not statuses:
            continue
        refused = sum(status != 0 for status in statuses)
        rows.append((fault, f"{len(statuses):,}", f"{refused:,}", str(found)))
        bad += found
        note(" | ".join(rows[-1]))
    columns = ("fault", "runs", "refused", "faults")
    found_all = Found([Sheet("Disks and files that failed", columns, tuple(rows))])
    found_all.limits = [Limit("runs with a fault", bad, 0)]
    end(found_all, ["tensorcomp", "torch"], markdown=markdown, json_path=json_path)


if __name__ == "__main__":
    typer.run(main)
