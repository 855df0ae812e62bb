"""Trainings by every method, for every seed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from statistics import mean

import torch

from benchmarks.common.by_seed import BySeed
from benchmarks.gradients.methods import ADAM, RATES, SGD, TOLERANCE, Method
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
    validation: bool = False


def done(job: Job) -> tuple[Job, Outcome]:
    """Do a job, with one thread."""
    torch.set_num_threads(1)
    task = replace(job.task, epochs=job.epochs)
    compressor = job.method.compressor_for(task.steps)
    outcome = train(task, compressor, job.method.rule, job.seed, validation=job.validation)
    return job, outcome


def _run(jobs: Sequence[Job], processes: int) -> Iterator[tuple[Job, Outcome]]:
    if processes == 1:
        yield from map(done, jobs)
        return
    with get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(done, jobs)


def _rows(
    jobs: Sequence[Job], processes: int, note: Callable[[str], None] = lambda _: None
) -> list[AccuracyRow]:
    found: dict[tuple[str, Method], dict[int, Outcome]] = {}
    for count, (job, outcome) in enumerate(_run(jobs, processes), 1):
        note(f"{count} of {len(jobs)}: {job.task.name}, {job.method.name}: {outcome.accuracy:.2f}")
        found.setdefault((job.task.name, job.method), {})[job.seed] = outcome
    rows = {
        (task, method): AccuracyRow(
            task,
            method.name,
            tuple(by_seed[seed].accuracy for seed in sorted(by_seed)),
            mean(outcome.raw for outcome in by_seed.values()),
            mean(outcome.steady for outcome in by_seed.values()),
            mean(outcome.sent for outcome in by_seed.values()),
            next(iter(by_seed.values())).steps,
            method.within,
        )
        for (task, method), by_seed in found.items()
    }
    asked = dict.fromkeys((job.task.name, job.method) for job in jobs)
    return [rows[key] for key in asked]


def accuracy_rows(
    tasks: Iterable[str],
    methods: Sequence[Method],
    seeds: Sequence[int],
    *,
    epochs: int | None = None,
    processes: int = 1,
    note: Callable[[str], None] = lambda _: None,
) -> list[AccuracyRow]:
    """Train by every method, for every seed."""
    jobs = [
        Job(TASKS[name], method, seed, epochs or TASKS[name].epochs)
        for name in tasks
        for method in methods
        for seed in seeds
        if name in method.tasks
    ]
    return _rows(jobs, processes, note)


def choice_rows(
    tasks: Iterable[str], seeds: Sequence[int], *, processes: int = 1
) -> list[AccuracyRow]:
    """Train by dense gradients at each rate of learning, and score on validation digits."""
    methods = [
        replace(
            method,
            name=f"{method.rule.optimizer}, {rate:g}",
            rule=replace(method.rule, rate=rate),
        )
        for method in (SGD, ADAM)
        for rate in RATES[method.rule.optimizer]
    ]
    jobs = [
        Job(TASKS[name], method, seed, TASKS[name].epochs, validation=True)
        for name in tasks
        for method in methods
        for seed in seeds
    ]
    return _rows(jobs, processes)


def chosen_rate(optimizer: str, rows: Iterable[AccuracyRow]) -> float:
    """Return the smallest rate of learning that comes within the tolerance of the best one."""
    found: dict[float, list[float]] = {}
    for row in rows:
        name, _, rate = row.method.partition(", ")
        if name == optimizer:
            found.setdefault(float(rate), []).append(row.mean)
    means = {rate: mean(accuracies) for rate, accuracies in found.items()}
    best = max(means.values())
    return min(rate for rate, accuracy in means.items() if accuracy >= best - TOLERANCE)
