"""Damage files of every format, and try whether anything but a refusal or the right data comes.

    python -m benchmarks.hardening.damage --files 1000000 --workers 2 [--seed 1] [--case NUMBER]

A case is a sound file, a layer of it that is damaged (checksums above it mended), and a way to
read it. Findings: a crash, any error but ours, an error of several lines, a warning; data that
differ where checksums or digests guard them; memory above the limit; ten times the sound file's
processor time. What guards nothing (a plain checkpoint) must be written back as it was read.
"""

import contextlib
import faulthandler
import gc
import multiprocessing
import os
import resource
import shutil
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Annotated, Any

import torch
import typer

from benchmarks.common.reporting import Found, JsonPath, Limit, Markdown, Sheet, end, note
from benchmarks.hardening.compressed_files import TAMPERING, tamper_side_information
from benchmarks.hardening.formats import sounds
from benchmarks.hardening.sound import Sound, Way, place_of, scratch
from tensorcomp.errors import TensorcompError

MEMORY = 400 << 20  # bytes that reading may take beyond what a worker has
SLOWER, FLOOR = 10, 0.1  # times the sound file; seconds below which nothing is slow
_HANGS_AFTER = 60  # seconds
_BATCH = 250
_LONGEST = 2000  # characters of a message
_SHARES = {"compressed file": 10.0, "safetensors checkpoint": 1.5, "torch checkpoint": 0.7,
           "npz checkpoint": 1.5, "gradient payload": 2.0, "gradient message": 2.0,
           "ticket": 0.4}  # fmt: skip


@dataclass
class Tally:
    """Results of cases: counts by kind and outcome, and findings."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    findings: dict[str, list[str]] = field(default_factory=dict)
    slowest: float = 0.0
    memory: int = 0

    def add(self, other: "Tally") -> None:
        """Add what another worker counted."""
        self.counts += other.counts
        for key, cases in other.findings.items():
            self.findings.setdefault(key, []).extend(cases)
        self.slowest = max(self.slowest, other.slowest)
        self.memory = max(self.memory, other.memory)


@dataclass(frozen=True)
class Case:
    """A damaged file, and how it is read."""

    sound: Sound
    layer: Any
    way: Way
    data: Any
    armed: float | None


class Cases:
    """All cases of a seed, by number."""

    def __init__(self, seed: int, kinds: str = "", every: int = 1) -> None:
        self.seed = seed
        self.kinds: dict[str, list[Sound]] = {}
        tamper_side_information()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for sound in sounds(every):
                if sound.kind.startswith(tuple(kinds.split(","))):
                    self.kinds.setdefault(sound.kind, []).append(sound)
        self._known: dict[tuple[int, str], Any] = {}
        # Large files are slow to read, and damage does not get worse with size.
        self.sizes = {
            kind: [1 / (2000 + len(one.data)) for one in kept] for kind, kept in self.kinds.items()
        }
        self.weights = [_SHARES.get(kind, 0.5) for kind in self.kinds]

    def case(self, number: int) -> Case:
        """Return a case."""
        random = Random(f"{self.seed} {number}")
        kind = random.choices(list(self.kinds), self.weights)[0]
        sound = random.choices(self.kinds[kind], self.sizes[kind])[0]
        layer = random.choices(sound.layers, [one.weight for one in sound.layers])[0]
        way = random.choices(sound.ways, [one.weight for one in sound.ways])[0]
        TAMPERING.seed = None
        with warnings.catch_warnings():  # of what damage is made by
            warnings.simplefilter("ignore")
            data = layer.damage(sound.data, random)
        return Case(sound, layer, way, data, TAMPERING.seed)

    def run(self, number: int, tally: Tally) -> None:
        """Try a case, and count what came of it."""
        case = self.case(number)
        start = time.process_time()
        try:
            outcome = self._outcome(case)
        except TensorcompError as error:  # of what is expected of the sound file
            raise AssertionError(f"{case.sound.name} is refused undamaged: {error}") from error
        except Exception as error:
            outcome = "finding"
            self._found(tally, number, case, place_of(error))
        taken = time.process_time() - start
        if taken > FLOOR and outcome != "finding":
            ratio = self._slower(case)
            tally.slowest = max(tally.slowest, ratio)
            if ratio > SLOWER:
                outcome = "finding"
                self._found(tally, number, case, f"slow: {SLOWER} times the sound file")
        tally.counts[case.sound.kind, outcome] += 1

    def _found(self, tally: Tally, number: int, case: Case, what: str) -> None:
        key = f"{case.sound.kind}, {case.layer.name}, {case.way.name}: {what}"
        tally.findings.setdefault(key, []).append(f"{number} ({case.sound.name})")

    def _outcome(self, case: Case) -> str:
        refusal = _refusal(case, case.way.read)
        if isinstance(refusal, TensorcompError):
            text = str(refusal)
            assert "\n" not in text, f"a message of several lines: {type(refusal).__name__}"
            assert len(text) <= _LONGEST, f"a message of {len(text)} characters"
            cause: BaseException | None = refusal
            while cause is not None:
                assert not isinstance(cause, MemoryError), "too much memory, refused"
                cause = cause.__cause__ or cause.__context__
            return "refused"
        if refusal is None or refusal == self._wanted(case):
            return "as sound" if case.layer.guarded else "read"
        if not case.layer.guarded:
            return "read"
        assert case.way.sure is not None, "other data than the sound file's"
        sure = _refusal(case, case.way.sure)
        assert isinstance(sure, TensorcompError), "other data, and digests do not notice"
        return "refused by digests"

    def _wanted(self, case: Case) -> Any:
        """Return what a way reads from the sound file."""
        key = id(case.sound), case.way.name
        if key not in self._known:
            self._known[key] = case.way.read(case.sound.data)
        return self._known[key]

    def _slower(self, case: Case) -> float:
        """Return how many times as long as the sound file a case takes, timed anew."""

        def timed(read: Callable[[], Any]) -> float:
            times = []
            for _ in range(3):
                gc.collect()
                start = time.process_time()
                read()
                times.append(time.process_time() - start)
            return min(times)

        slow = timed(lambda: _refusal(case, case.way.read))
        if slow < FLOOR:
            return 0.0
        return slow / timed(lambda: case.way.read(case.sound.data))


def _refusal(case: Case, read: Callable[[Any], Any]) -> Any:
    """Return what a way returns for a damaged file, or our error."""
    TAMPERING.seed = case.armed
    try:
        return read(case.data)
    except TensorcompError as error:
        return error
    finally:
        TAMPERING.seed = None


def limit_process() -> None:
    """Set the limits of a worker: memory, and warnings as errors."""
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))


def _work(cases: Cases, numbers: range, current: Any, results: Any) -> None:
    limit_process()
    faulthandler.enable()
    tally, base = Tally(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for count, number in enumerate(numbers, 1):
        current.value = number
        cases.run(number, tally)
        if count % _BATCH == 0 or number == numbers[-1]:
            tally.memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) << 10
            results.send((number, tally))
            tally = Tally()
    shutil.rmtree(scratch(), ignore_errors=True)


class _Worker:
    """A process that tries cases; where it crashes or hangs, the next one goes on behind that."""

    def __init__(self, cases: Cases, numbers: range) -> None:
        self.cases, self.numbers = cases, numbers
        self.fork = multiprocessing.get_context("fork")
        self.start()

    def start(self) -> None:
        self.current = self.fork.RawValue("q", self.numbers[0])
        self.results, sender = self.fork.Pipe(duplex=False)
        arguments = (self.cases, self.numbers, self.current, sender)
        self.process = self.fork.Process(target=_work, args=arguments)
        self.process.start()
        sender.close()
        self.seen, self.since = -1, time.monotonic()

    def poll(self, tally: Tally) -> bool:
        """Take what is ready; return whether there is more to come."""
        with contextlib.suppress(EOFError):
            while self.results.poll(0.05):
                done, part = self.results.recv()
                tally.add(part)
                self.numbers = range(done + self.numbers.step, self.numbers.stop, self.numbers.step)
        if not self.numbers:
            self.process.join()
            return False
        if self.current.value != self.seen:
            self.seen, self.since = self.current.value, time.monotonic()
        hangs = time.monotonic() - self.since > _HANGS_AFTER
        if hangs and self.process.pid:
            os.kill(self.process.pid, signal.SIGKILL)
        if hangs or not self.process.is_alive():
            self.process.join()
            what = "hangs" if hangs else f"ends by {self.process.exitcode}"
            tally.findings.setdefault(f"the process {what}", []).append(str(self.current.value))
            # What this batch counted is lost with the process.
            after = self.current.value + self.numbers.step
            self.numbers = range(after, self.numbers.stop, self.numbers.step)
            if self.numbers:
                self.start()
        return bool(self.numbers)


def run(cases: Cases, files: int, workers: int = 1, seconds: float = 1e9) -> Tally:
    """Try the first cases of a seed on processes; stop after some seconds."""
    tally, ends, reported = Tally(), time.monotonic() + seconds, time.monotonic()
    running = [_Worker(cases, range(n, files, workers)) for n in range(min(workers, files))]
    while running and time.monotonic() < ends:
        running = [worker for worker in running if worker.poll(tally)]
        if time.monotonic() - reported > 30:
            reported = time.monotonic()
            note(f"{sum(tally.counts.values()):,} files, {len(tally.findings)} findings")
    for worker in running:
        worker.process.kill()
        worker.process.join()
    return tally


def main(
    files: Annotated[int, typer.Option(help="Damaged files.")] = 1_000_000,
    workers: Annotated[int, typer.Option(help="Processes.")] = 2,
    seed: Annotated[int, typer.Option(help="Of all cases.")] = 1,
    kinds: Annotated[str, typer.Option(help="Only kinds that begin so.")] = "",
    seconds: Annotated[float, typer.Option(help="Stop after so long.")] = 1e9,
    case: Annotated[int | None, typer.Option(help="Try this case alone, here.")] = None,
    markdown: Markdown = False,
    json_path: JsonPath = None,
) -> None:
    """Damage files, and report findings."""
    cases = Cases(seed, kinds)
    if case is not None:
        one = cases.case(case)
        place = f"{one.sound.kind} {one.sound.name}, {one.layer.name}, {one.way.name}"
        note(f"{place}: {str(one.data)[:2000]}")
        limit_process()
        note(cases._outcome(one))
        return
    start = time.monotonic()
    tally = run(cases, files, workers, seconds)
    shutil.rmtree(scratch(), ignore_errors=True)
    done = sum(tally.counts.values())
    outcomes = ("refused", "as sound", "refused by digests", "read", "finding")
    rows = [(kind, *(f"{tally.counts[kind, one]:,}" for one in outcomes)) for kind in cases.kinds]
    sheet = Sheet(f"{done:,} damaged files by outcome", ("kind", *outcomes), tuple(rows))
    limits = [
        Limit("findings", len(tally.findings), 0),
        Limit("processor time over that of the sound file", tally.slowest, SLOWER),
        Limit("MiB of memory that reading took", tally.memory / (1 << 20), MEMORY >> 20),
    ]
    found = Found([sheet], limits)
    for key, numbers in sorted(tally.findings.items()):
        note(f"{len(numbers):6} × {key}\n         cases {', '.join(sorted(numbers, key=len)[:4])}")
    about = {
        "seed": str(seed), "files a second": f"{done / (time.monotonic() - start):,.0f}",
        "slowest": f"{tally.slowest:.1f} times the sound file, of those above {FLOOR} s",
        "memory": f"{tally.memory >> 20} MiB",
    }  # fmt: skip
    end(found, ("tensorcomp", "numpy", "torch"), about, markdown=markdown, json_path=json_path)


if __name__ == "__main__":
    typer.run(main)
