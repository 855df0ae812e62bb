"""Seconds of a training step and bytes on the interface, by way of sending, ranks and rate."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Any

from benchmarks.common.reporting import note
from benchmarks.gradients.links import UNSHAPED, LinkError, Namespaces, Ranks, namespaces, ranks
from benchmarks.gradients.ways import WAYS

WORKER = "benchmarks.gradients.worker"
AT_ONCE = 3  # steps between two looks at the time

_JOIN_SECONDS = 90.0
_OPEN_SECONDS = 120.0
_RUN_SECONDS = 120.0
_CLOSE_SECONDS = 30.0
_TURNS = 6  # of each training whose overhead is compared
_TURN_STEPS = 5


@dataclass(frozen=True)
class WireRow:
    """Cost of a step.

    Parameters
    ----------
    world : int
        Ranks.
    rate : str
        Of each link.
    way : str
    seconds : float
        Median over steps of the slowest rank's seconds; NaN if it failed.
    sent : float
        Bytes that left a rank's interface in a step, the mean over ranks; NaN if it failed.
    steps : int
        That were measured.
    figures : dict of str to float
        What the compression itself measured on rank 0: bytes and ms of a step, by their names.
    choices : dict of str to int
        How many parameters were sent by which compressor, where that is chosen.
    message : float
        Seconds of a message between two ranks: those of summing one number, by 2 (W − 1).
    error : str
        Why there are no figures.
    """

    world: int
    rate: str
    way: str
    seconds: float = float("nan")
    sent: float = float("nan")
    steps: int = 0
    figures: dict[str, float] = field(default_factory=dict)
    choices: dict[str, int] = field(default_factory=dict)
    message: float = 0.0
    error: str = ""


@dataclass
class Crew:
    """The ranks in some namespaces, started anew after one of them failed."""

    where: Namespaces
    started: AbstractContextManager[Ranks] | None = None
    group: Ranks | None = None

    def ask(self, seconds: float, **what: Any) -> list[dict[str, Any]]:
        """Have all ranks do something within so many seconds."""
        if self.group is None:
            self.started = ranks(self.where, WORKER, _JOIN_SECONDS)
            self.group = self.started.__enter__()
        try:
            return self.group.ask(seconds, **what)
        except LinkError:
            self.end()
            raise

    def end(self) -> None:
        """End all processes."""
        started, self.started, self.group = self.started, None, None
        if started is not None:
            started.__exit__(None, None, None)

    def open(self, way: str, rate: str) -> None:
        """Begin a training; the steps that are in no figure go over fast links, where they may."""
        chosen = WAYS[way]
        self.where.shape(rate if chosen.adapts else UNSHAPED)
        self.ask(_OPEN_SECONDS, do="open", way=way, discard=chosen.discard)
        self.where.shape(rate)

    def run(self, way: str, steps: int) -> "Run":
        """Do some steps."""
        answers = self.ask(_RUN_SECONDS, do="run", way=way, steps=steps)
        if WAYS[way].in_step and len({answer["digest"] for answer in answers}) > 1:
            raise LinkError("the ranks' parameters differ")
        if not all(answer["finite"] for answer in answers):
            raise LinkError("a parameter is not finite")
        slowest = [max(turn) for turn in zip(*(a["seconds"] for a in answers), strict=True)]
        return Run(slowest, mean(a["sent"] for a in answers), answers[0])

    def close(self, way: str) -> None:
        """End a training."""
        self.ask(_CLOSE_SECONDS, do="close", way=way)


@dataclass(frozen=True)
class Run:
    """Some steps of all ranks: seconds of each, bytes sent in all, the first rank's answer."""

    seconds: list[float]
    sent: float
    first: dict[str, Any]


def _row(world: int, rate: str, way: str, runs: Sequence[Run]) -> WireRow:
    seconds = [taken for run in runs for taken in run.seconds]
    last = runs[-1].first
    return WireRow(
        world,
        rate,
        way,
        median(seconds),
        sum(run.sent for run in runs) / len(seconds),
        len(seconds),
        {name: mean(run.first["figures"][name] for run in runs) for name in last["figures"]},
        last["choices"],
        median(run.first["round_trip"] for run in runs) / (2 * (world - 1)),
    )


def wire_rows(
    world: int, rates: Sequence[str], ways: Sequence[str], steps: int, budget: float
) -> Iterator[WireRow]:
    """Measure every way at every rate.

    Parameters
    ----------
    world : int
        Ranks.
    rates : sequence of str
    ways : sequence of str
    steps : int
        To be measured at most; never fewer than `AT_ONCE`.
    budget : float
        Seconds after which no more steps are begun.
    """
    with namespaces(world) as where:
        crew = Crew(where)
        try:
            for rate in rates:
                for way in ways:
                    row = _measured(crew, world, rate, way, steps, budget)
                    figures = row.error or f"{1e3 * row.seconds:.0f} ms, {row.sent / 1e6:.3f} MB"
                    note(f"{world} ranks, {rate}, {way}: {figures}")
                    yield row
        finally:
            crew.end()


def _measured(crew: Crew, world: int, rate: str, way: str, steps: int, budget: float) -> WireRow:
    try:
        crew.open(way, rate)
        runs = [crew.run(way, AT_ONCE)]
        while AT_ONCE * (len(runs) + 1) <= steps and sum(sum(run.seconds) for run in runs) < budget:
            runs.append(crew.run(way, AT_ONCE))
        crew.close(way)
    except LinkError as error:
        crew.end()
        return WireRow(world, rate, way, error=str(error))
    return _row(world, rate, way, runs)


def overhead_rows(world: int, ways: Sequence[str]) -> list[WireRow]:
    """Measure ways at full speed, in turns, so that what else the machine does hits all alike."""
    with namespaces(world) as where:
        crew = Crew(where)
        taken: dict[str, list[Run]] = {way: [] for way in ways}
        try:
            for way in ways:
                crew.open(way, UNSHAPED)
            for turn in range(_TURNS):
                for way in [*ways[turn % len(ways) :], *ways[: turn % len(ways)]]:
                    taken[way].append(crew.run(way, _TURN_STEPS))
        except LinkError as error:
            note(f"overhead: {error}")
            return [WireRow(world, UNSHAPED, way, error=str(error)) for way in ways]
        finally:
            crew.end()
    return [_row(world, UNSHAPED, way, runs) for way, runs in taken.items()]
