"""Accuracy by method of pruning and sparsity.

Methods at initialisation prune once, then train for the case's epochs. Lottery tickets train as
long in each round, from the same initial weights. Magnitude prunes the trained dense network once,
and fine-tunes it for as many epochs again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from benchmarks.common.accuracy import BySeed, Digits, accuracy, in_processes
from benchmarks.common.reporting import note
from benchmarks.pruning.networks import CASES, Case, Course
from tensorcomp.pruning import PruningResult, calibrate, prune
from tensorcomp.pruning.lottery_ticket.lottery import find_ticket, train_reinitialised

SPARSITIES = (0.8, 0.9, 0.95, 0.98, 0.99)
DENSE, RANDOM = "dense", "random"
SNIP, GRASP, SYNFLOW = "SNIP", "GraSP", "SynFlow"
SHUFFLED_SNIP, SHUFFLED_GRASP = "SNIP, shuffled", "GraSP, shuffled"
TUNED, TICKET, REDRAWN = "magnitude, fine-tuned", "lottery ticket", "ticket, re-initialised"
METHODS = (RANDOM, SHUFFLED_SNIP, SNIP, SHUFFLED_GRASP, GRASP, SYNFLOW, REDRAWN, TICKET, TUNED)

_OTHER_SEED = 1000  # apart from all seeds that are asked for


@dataclass(frozen=True)
class Score:
    """The held-out accuracy of one network, in per cent."""

    case: str
    method: str
    sparsity: float
    seed: int
    accuracy: float


@dataclass(frozen=True)
class MethodRow(BySeed):
    """The held-out accuracies of a method, in per cent, by seed; `spread` is their deviation."""

    case: str
    method: str
    sparsity: float
    accuracies: tuple[float, ...]


@dataclass(frozen=True)
class Job:
    """Work of one process at a time: methods that share work, for one case and seed."""

    work: str
    case: str
    seed: int
    sparsities: tuple[float, ...]
    epochs: int | None = None


@dataclass(frozen=True)
class Setting:
    """A case with the digits of a seed."""

    case: Case
    digits: Digits
    seed: int
    sparsities: tuple[float, ...]
    course: Course

    def model(self) -> nn.Module:
        """Make the untrained network of the seed."""
        return self.case.seeded_model(self.seed)

    def trained(self, result: PruningResult, model: nn.Module | None = None) -> float:
        """Train a network with masks held, the untrained one by default; return its accuracy."""
        model = model or self.model()
        optimizer = self.case.optimizer(model)
        with result.hold(model, optimizer):
            return self.course.finish(model, optimizer)


Found = Iterator[tuple[str, float, float]]  # method, sparsity, accuracy


def by_chance(setting: Setting) -> Found:
    """Prune at random."""
    for sparsity in setting.sparsities:
        result = prune(setting.model(), f"random({setting.seed})", sparsity, threads=1)
        yield RANDOM, sparsity, setting.trained(result)


def by_snip(setting: Setting) -> Found:
    """Prune by SNIP, and shuffle its masks in each layer."""
    yield from _by_gradients(setting, "snip", SNIP, SHUFFLED_SNIP)


def by_grasp(setting: Setting) -> Found:
    """Prune by GraSP, and shuffle its masks in each layer."""
    yield from _by_gradients(setting, "grasp", GRASP, SHUFFLED_GRASP)


def _by_gradients(setting: Setting, score: str, name: str, shuffled: str) -> Found:
    model = setting.model()
    measured = calibrate(model, setting.digits.batches(), statistics=(score,))
    for sparsity in setting.sparsities:
        result = prune(model, score, sparsity, statistics=measured, threads=1)
        yield name, sparsity, setting.trained(result)
        if score in setting.case.shuffled:
            yield shuffled, sparsity, setting.trained(result.shuffled(setting.seed))


def by_flow(setting: Setting) -> Found:
    """Prune by SynFlow, in 100 rounds."""
    example = setting.digits.images[:1]
    for sparsity in setting.sparsities:
        result = prune(setting.model(), "synflow", sparsity, example=example, threads=1)
        yield SYNFLOW, sparsity, setting.trained(result)


def by_training(setting: Setting) -> Found:
    """Prune after training: lottery tickets, their control, and fine-tuning."""
    case, course = setting.case, setting.course
    rounds = sorted({*setting.sparsities, *case.rounds})
    ticket = find_ticket(
        case.model,
        case.optimizer,
        course.train,
        steps=course.steps,
        sparsities=[sparsity for sparsity in rounds if sparsity <= max(setting.sparsities)],
        seed=setting.seed,
    )
    dense = case.network()
    dense.load_state_dict(ticket.rounds[0].weights())
    yield DENSE, 0.0, accuracy(dense, setting.digits)
    found = dict(zip((0.0, *rounds), ticket.rounds, strict=False))
    for sparsity in setting.sparsities:
        yield TICKET, sparsity, _accuracy_of(setting, found[sparsity].weights())
        redrawn = train_reinitialised(
            case.model,
            case.optimizer,
            course.train,
            found[sparsity].result.masks,
            steps=course.steps,
            seed=_OTHER_SEED + setting.seed,
        )
        yield REDRAWN, sparsity, _accuracy_of(setting, redrawn)
        model = case.network()
        model.load_state_dict(ticket.rounds[0].weights())
        result = prune(model, "magnitude", sparsity, threads=1)
        yield TUNED, sparsity, setting.trained(result, model)


def _accuracy_of(setting: Setting, weights: dict[str, torch.Tensor]) -> float:
    model = setting.case.network()
    model.load_state_dict(weights)
    return accuracy(model, setting.digits)


WORK: dict[str, Callable[[Setting], Found]] = {
    "training": by_training,  # the longest first
    "snip": by_snip,
    "grasp": by_grasp,
    "synflow": by_flow,
    "random": by_chance,
}


def done(job: Job) -> list[Score]:
    """Do a job."""
    case = CASES[job.case]
    digits = case.digits(job.seed)
    course = Course(case, digits, job.epochs or case.epochs, job.seed, case.peak)
    setting = Setting(case, digits, job.seed, job.sparsities, course)
    return [
        Score(job.case, method, sparsity, job.seed, found)
        for method, sparsity, found in WORK[job.work](setting)
    ]


def method_rows(
    cases: Iterable[str],
    seeds: Sequence[int],
    sparsities: Sequence[float] = SPARSITIES,
    *,
    processes: int = 2,
) -> list[MethodRow]:
    """Run every method on networks, at every sparsity, for every seed."""
    jobs = [
        Job(work, case, seed, tuple(sparsities))
        for case in cases
        for work in WORK
        for seed in seeds
    ]
    found: dict[tuple[str, str, float], dict[int, float]] = {}
    for number, (_, scores) in enumerate(in_processes(done, jobs, processes), 1):
        note(f"{number} of {len(jobs)} jobs done")
        for score in scores:
            key = (score.case, score.method, score.sparsity)
            found.setdefault(key, {})[score.seed] = score.accuracy
    return [
        MethodRow(*key, tuple(by_seed[seed] for seed in seeds))
        for key, by_seed in sorted(found.items())
    ]
