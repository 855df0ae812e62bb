"""Kill every writer, before each system call that changes files and at random instants.

    python -m benchmarks.hardening.kills --kills 300 [--seed 1] [--only NAME]

Each job runs in a fork that is killed by SIGKILL: before its first, second, … opening for writing,
truncation, sync, renaming, removal or new folder, and at random instants between. Afterwards what
was there, or what is written in its place, must be whole, and the next run must succeed and leave
no temporary file. A new writer is one more entry of `JOBS`.
"""

import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
import typer
from safetensors.numpy import save_file

import tensorcomp
from tensorcomp.container.model import COMPRESSED, open_model
from tensorcomp.gradients.ddp.checkpoints import from_tensors, to_tensors
from tensorcomp.io.files import is_temporary
from tensorcomp.pruning.lottery_ticket.rewind_point import RewindPoint
from tensorcomp.pruning.lottery_ticket.store import TicketStore

_EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link")


class Job(NamedTuple):
    """A writer: what it begins with, what it does, and what must hold whenever it was killed."""

    prepare: Callable[[Path], object]
    run: Callable[[Path], object]
    check: Callable[[Path], object]


def _model(folder: Path) -> None:
    generator = np.random.default_rng(0)
    (folder / "m").mkdir()
    for number in range(3):
        weights = {f"{number}.w": generator.standard_normal((64, 256), np.float32)}
        save_file(weights, folder / "m" / f"model-{number + 1:05}-of-00003.safetensors")
    (folder / "m" / "config.json").write_text("{}")


def _compressed(folder: Path) -> None:
    _model(folder)
    tensorcomp.compress(folder / "m", replace=True, threads=1)


def _digests(folder: Path) -> list[str]:
    return sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir())


def _wanted() -> list[str]:
    with tempfile.TemporaryDirectory() as name:
        _model(Path(name))
        return _digests(Path(name) / "m")


def _whole(folder: Path) -> None:
    """Require that every shard is there as it was, in one form or the other, and all are whole."""
    for place in (path for path in folder.iterdir() if path.is_dir() and not is_temporary(path)):
        with tempfile.TemporaryDirectory() as name:
            for path in place.iterdir():
                if path.name.endswith(COMPRESSED):
                    restored = Path(name) / path.name.replace(COMPRESSED, ".safetensors")
                    tensorcomp.decompress(path, restored, threads=1, force=True)
            for path in place.iterdir():
                other = Path(name) / path.name
                if path.name.endswith(COMPRESSED) or is_temporary(path):
                    continue
                if other.exists() and other.read_bytes() != path.read_bytes():
                    raise AssertionError(f"{path} and its compressed form differ")
                shutil.copy(path, other)
            if _digests(Path(name)) != _wanted():
                raise AssertionError(f"{place} is neither as it was nor whole")


def _out(verb: Callable[..., Any]) -> Callable[[Path], object]:
    return lambda folder: verb(folder / "m", folder / "out", force=True, threads=1)


def _in_place(verb: Callable[..., Any]) -> Callable[[Path], object]:
    def run(folder: Path) -> None:
        is_compressed = any(path.name.endswith(COMPRESSED) for path in (folder / "m").iterdir())
        if verb is tensorcomp.compress or is_compressed:  # else it had ended
            verb(folder / "m", replace=True, threads=1)

    return run


def _file(folder: Path) -> None:
    for path in open_model(folder / "m").shards[:1]:
        (folder / "one").mkdir(exist_ok=True)
        tensorcomp.compress(
            folder / "m" / path, folder / "one" / f"x{COMPRESSED}", force=True, threads=1
        )


def _check_file(folder: Path) -> None:
    for path in (folder / "one").glob("*.safetensors"):
        if any(check.error for check in tensorcomp.verify(path, threads=1)):
            raise AssertionError(f"{path} is damaged")


def _ticket(folder: Path) -> None:
    store = TicketStore(folder / "ticket", {"rounds": 2})
    store.point(lambda: RewindPoint(b"point" * 5000))
    for name in ("round-01", "round-02"):
        store.weights(name, lambda: {"w": torch.arange(5000.0)})


def _check_ticket(folder: Path) -> None:
    store, wanted = TicketStore(folder / "ticket", {"rounds": 2}), torch.arange(5000.0)
    if store.point(lambda: RewindPoint(b"point" * 5000)).data != b"point" * 5000:
        raise AssertionError("another rewind point")
    if not torch.equal(store.weights("round-01", lambda: {"w": wanted})()["w"], wanted):
        raise AssertionError("other weights")


def _state(step: int) -> dict[str, Any]:
    states = {"w": {"residual": torch.full((20000,), float(step)), "step": step}}
    return {"version": 1, "states": states, "means": {}}


def _save_state(step: int) -> Callable[[Path], object]:
    return lambda folder: tensorcomp.save_file(
        to_tensors(_state(step)), folder / f"state{COMPRESSED}", threads=1
    )


def _check_state(folder: Path) -> None:
    loaded = tensorcomp.load_file(folder / f"state{COMPRESSED}", framework="pt")
    found = from_tensors(loaded)["states"]["w"]
    if found["step"] not in (1, 2) or found["residual"].unique().tolist() != [found["step"]]:
        raise AssertionError("a state of neither step")


JOBS: dict[str, Job] = {
    "compress a file": Job(_model, _file, _check_file),
    "compress a folder": Job(_model, _out(tensorcomp.compress), _whole),
    "compress --replace": Job(_model, _in_place(tensorcomp.compress), _whole),
    "decompress a folder": Job(_compressed, _out(tensorcomp.decompress), _whole),
    "decompress --replace": Job(_compressed, _in_place(tensorcomp.decompress), _whole),
    "lottery ticket": Job(lambda folder: None, _ticket, _check_ticket),
    "gradient state": Job(_save_state(1), _save_state(2), _check_state),
}


def _forked(job: Job, folder: Path, before: int, seconds: float) -> tuple[bool, float]:
    """Run a job that dies before a call, or after a time; return whether it ended, and its time."""
    begun = time.perf_counter()
    child = os.fork()
    if not child:
        left = before

        def count(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal left
            writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & 0o103
            if event in _EVENTS or writes:
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        def sync(descriptor: int, fsync: Callable[[int], None] = os.fsync) -> None:
            count("os.remove", ())
            fsync(descriptor)

        os.fsync = sync  # type: ignore[assignment]
        sys.addaudithook(count)
        try:
            job.run(folder)
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            os._exit(1)
    if seconds:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in (0, -signal.SIGKILL):
        raise AssertionError(f"the run ended with status {status}")
    return status == 0, time.perf_counter() - begun


def kill(job: Job, before: int = 0, seconds: float = 0.0) -> bool:
    """Kill one run, check what it left, run again; return whether the first had ended."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job.prepare(folder)
        ended, _ = _forked(job, folder, before, seconds)
        job.check(folder)
        if not _forked(job, folder, 0, 0.0)[0]:
            raise AssertionError("the next run did not end")
        job.check(folder)
        if left := [path for path in folder.rglob("*") if is_temporary(path)]:
            raise AssertionError(f"left behind: {left}")
        return ended


def main(
    kills: Annotated[int, typer.Option(help="At least so many, over all jobs.")] = 300,
    seed: int = 1,
    only: Annotated[str, typer.Option(help="Jobs whose name holds this.")] = "",
) -> None:
    """Print a table of all jobs, and end with status 1 if anything was found."""
    torch.set_num_threads(1)
    generator = random.Random(seed)
    jobs = {name: job for name, job in JOBS.items() if only in name}
    found: list[str] = []
    print("| writer | kills before a call | at random instants | findings |")
    print("| --- | ---: | ---: | ---: |")
    for name, job in jobs.items():
        with tempfile.TemporaryDirectory() as folder:
            job.prepare(Path(folder))
            seconds = _forked(job, Path(folder), 0, 0.0)[1]
        calls, earlier = 0, len(found)
        while not _tried(found, f"{name}, call {calls + 1}", job, before=calls + 1):
            calls += 1
        at_random = max(-(-kills // len(jobs)) - calls, 0)
        for _ in range(at_random):
            instant = generator.uniform(1e-3, seconds)
            _tried(found, f"{name}, {instant:.4f} s", job, seconds=instant)
        print(f"| {name} | {calls:,} | {at_random:,} | {len(found) - earlier} |", flush=True)
    print(*found, sep="\n")
    sys.exit(bool(found))


def _tried(found: list[str], place: str, job: Job, **instant: Any) -> bool:
    """Kill a run and note what is found; return whether it had ended before."""
    try:
        return kill(job, **instant)
    except Exception as error:
        found.append(f"{place}: {error!r}")
        return len(found) > 20


if __name__ == "__main__":
    typer.run(main)
