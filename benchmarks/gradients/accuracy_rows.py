"""Trainings by every method, for every seed; tables of them, and what is claimed."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import mean

from benchmarks.common.accuracy import BySeed, deviation, in_processes
from benchmarks.common.reporting import ABSENT, Columns, Limit, Sheet, note, number, spread
from benchmarks.gradients.methods import ADAM, SGD, Method
from benchmarks.gradients.tasks import TASKS, Task
from benchmarks.gradients.training import Outcome, train


@dataclass(frozen=True)
class AccuracyRow(BySeed):
    """Held-out accuracies of a method in per cent, by seed, and payload bytes.

    Parameters
    ----------
    task, method : str
    accuracies : tuple of float
        By seed.
    raw, steady, sent : float
        Bytes of a gradient, of a worker's payloads at the last step, and of all steps; means over
        the seeds.
    steps : int
        Of a training.
    within : float or None
        Points below dense that are claimed at most.
    """

    task: str
    method: str
    accuracies: tuple[float, ...]
    raw: float
    steady: float
    sent: float
    steps: int
    within: float | None = None


@dataclass(frozen=True)
class Job:
    """A training of one seed."""

    task: Task
    method: Method
    seed: int
    epochs: int


def done(job: Job) -> Outcome:
    """Do a job."""
    task = replace(job.task, epochs=job.epochs)
    compressor = job.method.compressor_for(task.steps)
    return train(task, compressor, job.method.rule, job.seed)


def _rows(jobs: Sequence[Job], processes: int) -> list[AccuracyRow]:
    found: dict[tuple[str, Method], list[Outcome]] = {}
    for count, (job, outcome) in enumerate(in_processes(done, jobs, processes), 1):
        note(f"{count} of {len(jobs)}: {job.task.name}, {job.method.name}: {outcome.accuracy:.2f}")
        found.setdefault((job.task.name, job.method), []).append(outcome)
    return [
        AccuracyRow(
            task,
            method.name,
            tuple(outcome.accuracy for outcome in by_seed),
            mean(outcome.raw for outcome in by_seed),
            mean(outcome.steady for outcome in by_seed),
            mean(outcome.sent for outcome in by_seed),
            by_seed[0].steps,
            method.within,
        )
        for (task, method), by_seed in found.items()
    ]


def accuracy_rows(
    tasks: Iterable[str],
    methods: Sequence[Method],
    seeds: Sequence[int],
    *,
    epochs: int | None = None,
    processes: int = 1,
) -> list[AccuracyRow]:
    """Train by every method, for every seed."""
    jobs = [
        Job(TASKS[name], method, seed, epochs or TASKS[name].epochs)
        for name in tasks
        for method in methods
        for seed in seeds
        if name in method.tasks
    ]
    return _rows(jobs, processes)


def differences(row: AccuracyRow, rows: Iterable[AccuracyRow]) -> tuple[float, ...]:
    """Return by seed the points that a method is above dense gradients; none without those."""
    name = ADAM.name if row.method.startswith("Adam") else SGD.name
    for other in rows:
        if (other.task, other.method) == (row.task, name):
            pairs = zip(row.accuracies, other.accuracies, strict=True)
            return tuple(own - dense for own, dense in pairs)
    return ()


def below_dense(row: AccuracyRow, rows: Iterable[AccuracyRow]) -> float:
    """Return the points that a method's mean is below that of its dense gradients."""
    found = differences(row, rows)
    return round(-mean(found), 6) if found else float("nan")


def _to_dense(row: AccuracyRow, rows: Iterable[AccuracyRow]) -> str:
    """Write the mean difference to dense gradients, and its standard error."""
    found = differences(row, rows)
    if row.method in (SGD.name, ADAM.name) or not found:
        return ABSENT
    return f"{mean(found):+.2f} ± {deviation(found) / math.sqrt(len(found)):.2f}"


def accuracy_sheet(task: str, rows: Sequence[AccuracyRow]) -> Sheet:
    """Tabulate accuracies, and how many times smaller payloads are."""
    own = [row for row in rows if row.task == task]
    seeds = len(own[0].accuracies)
    title = (
        f"{task}: held-out accuracy, %, mean ± deviation of {seeds} seeds; to dense, points, mean ±"
        " standard error; bytes of a worker's payloads in the last step"
    )
    columns: Columns = {
        "method": lambda row: row.method,
        "accuracy": lambda row: spread(row.mean, row.spread),
        "to dense": lambda row: _to_dense(row, rows),
        "bytes": lambda row: number(row.steady, 0),
        "ratio": lambda row: f"{row.raw / row.steady:.1f}" if row.steady else ABSENT,
        "ratio overall": lambda row: (
            f"{row.raw * row.steps / row.sent:.1f}" if row.sent else ABSENT
        ),
    }
    return Sheet.of(title, own, columns)


def accuracy_limits(rows: Sequence[AccuracyRow]) -> list[Limit]:
    """Return what is claimed: points below dense gradients."""
    return [
        Limit(f"{row.task}: {row.method}, points below dense", below_dense(row, rows), row.within)
        for row in rows
        if row.within is not None
    ]
