"""Deep Compression from end to end, and the planner's own trees on the same pruned networks.

A network is trained, pruned by magnitude in rounds along a cubic schedule, retrained with its masks
held after each, and stored: the values of each layer in a codebook of k means, Huffman codes, and
coded gaps (Han, Mao & Dally 2016, who trained their codebooks once more; these are as k-means made
them). Ratios are the bytes of the fp32 weights and biases over all bytes of the file.

The planner's file is the smallest that gives the pruned network no higher loss on the training
digits than Deep Compression's file does: held-out digits choose nothing.
"""

import copy
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

import torch
from safetensors.torch import save_file as save_plain
from torch import nn
from torch.nn import functional as F

from benchmarks.common.accuracy import Digits, accuracy, deviation, in_processes
from benchmarks.common.reporting import Columns, Limit, Sheet, note, spread
from benchmarks.pruning.networks import CASES, Case, Course
from tensorcomp import Budget, compress, load_file
from tensorcomp.errors import PlanError
from tensorcomp.planning.profiles import Profile, load_profile
from tensorcomp.pruning import PruningResult, calibrate, cubic, prune

DENSE, LONGER, PRUNED = "dense", "dense, trained as long", "pruned, retrained"
MEANS = (8, 16, 32)
JUDGED_MEANS = 16
TREE = "sparse(values=kmeans({k}, codes=huffman), mask=gaps)"
PROFILE, SMALLEST = "memory", 64  # elements: what Deep Compression's trees take, the planner's may
PUBLISHED = {"lenet-300-100": 40.0, "lenet-5": 39.0}

_FINEST, _COARSEST = 1.05, 0.75  # times Deep Compression's bytes
_TRIES = 6
_FISHER_DIGITS = 500
_ORDERS = 10_000  # apart from the orders of the first training


@dataclass(frozen=True)
class Recipe:
    """How far a case is pruned, in how many rounds, and the epochs of each and of the last.

    `peak` is the learning rate of retraining.
    """

    sparsity: float
    rounds: int
    epochs: int
    last: int
    peak: float = 2e-3


RECIPES = {"lenet-300-100": Recipe(0.96, 8, 5, 20), "lenet-5": Recipe(0.96, 6, 2, 8)}


@dataclass(frozen=True)
class DeepRow:
    """A network in a file: bytes, held-out accuracy in per cent, loss on the training digits."""

    case: str
    seed: int
    what: str
    sparsity: float
    nbytes: int
    ratio: float
    accuracy: float
    loss: float


def deep_compression(k: int) -> str:
    """Name Deep Compression's file."""
    return f"Deep Compression, {k} means"


def planned(k: int) -> str:
    """Name the planner's file."""
    return f"planner, at the loss of {k} means"


@dataclass(frozen=True)
class Stored:
    """A pruned network, and what its files are compared by."""

    case: Case
    digits: Digits
    seed: int
    folder: Path
    sparsity: float

    @property
    def source(self) -> Path:
        """Return the file of the pruned network in fp32."""
        return self.folder / "pruned.safetensors"

    def row(self, what: str, model: nn.Module, nbytes: int) -> DeepRow:
        """Judge a network that takes so many bytes."""
        plain = sum(4 * parameter.numel() for parameter in model.parameters())
        with torch.inference_mode():
            loss = float(F.cross_entropy(model(self.digits.images), self.digits.classes))
        found = accuracy(model, self.digits)
        sparsity = 0.0 if what in (DENSE, LONGER) else self.sparsity
        return DeepRow(
            self.case.name, self.seed, what, sparsity, nbytes, plain / nbytes, found, loss
        )

    def compressed(
        self,
        what: str,
        *,
        codecs: Sequence[str] = (),
        profile: Profile | None = None,
        size: int | None = None,
        importance: dict[str, float] | None = None,
    ) -> DeepRow:
        """Compress the pruned network, read it back and judge it."""
        file = self.folder / "pruned.tc.safetensors"
        compress(
            self.source,
            file,
            codecs=codecs,
            profile=profile,
            budget=None if size is None else Budget(target_size=size),
            importance=importance,
            threads=1,
            force=True,
        )
        model = self.case.network()
        model.load_state_dict(load_file(file, framework="pt"))
        return self.row(what, model, file.stat().st_size)


def courses(case: Case, digits: Digits, seed: int) -> list[tuple[float, Course]]:
    """Return the sparsity of each round, and its training."""
    recipe = RECIPES[case.name]
    found = []
    for number, sparsity in enumerate(cubic(recipe.sparsity, recipe.rounds), 1):
        epochs = recipe.last if number == recipe.rounds else recipe.epochs
        course = Course(case, digits, epochs, _ORDERS * number + seed, recipe.peak)
        found.append((sparsity, course))
    return found


def trained_on(case: Case, digits: Digits, seed: int, model: nn.Module) -> nn.Module:
    """Return a copy of a trained network that was trained on as pruned ones are: the control."""
    model = copy.deepcopy(model)
    for _, course in courses(case, digits, seed):
        course.finish(model)
    return model


def retrained(case: Case, digits: Digits, seed: int, model: nn.Module) -> PruningResult:
    """Prune a trained network in rounds, and retrain it after each."""
    result: PruningResult | None = None
    for sparsity, course in courses(case, digits, seed):
        result = prune(model, "magnitude", sparsity, previous=result, threads=1)
        optimizer = case.optimizer(model)
        with result.hold(model, optimizer):
            course.finish(model, optimizer)
    assert result is not None
    return result


def importances(model: nn.Module, digits: Digits) -> dict[str, float]:
    """Return what a unit of squared error costs in each layer: its mean Fisher information."""
    single = zip(digits.images[:_FISHER_DIGITS], digits.classes[:_FISHER_DIGITS], strict=True)
    batches = [(image[None], shown[None]) for image, shown in single]
    found = calibrate(model, batches, statistics=("fisher",)).arrays["fisher"]
    return {name: float(array.mean()) for name, array in found.items()}


def smallest_planned(
    stored: Stored, aim: DeepRow, what: str, importance: dict[str, float]
) -> DeepRow:
    """Return the planner's smallest file whose network has no higher training loss."""
    profile = replace(load_profile(PROFILE), smallest=SMALLEST)
    best: DeepRow | None = None
    fine, coarse = _FINEST, _COARSEST
    for attempt in range(_TRIES):
        share = fine if attempt == 0 else (fine + coarse) / 2
        size = int(share * aim.nbytes)
        try:
            row = stored.compressed(what, profile=profile, size=size, importance=importance)
        except PlanError:  # so small a file is not possible
            coarse = share
            continue
        if best is None or row.loss <= aim.loss:
            best, fine = row, share
        else:
            coarse = share
    assert best is not None
    return best


def worked(job: tuple[str, int, tuple[int, ...]]) -> list[DeepRow]:
    """Do all of it for one network and seed."""
    case, seed, means = CASES[job[0]], job[1], job[2]
    digits = case.digits(seed)
    model = case.seeded_model(seed)
    Course.of(case, digits, seed).finish(model)
    plain = sum(4 * parameter.numel() for parameter in model.parameters())
    with tempfile.TemporaryDirectory() as folder:
        stored = Stored(case, digits, seed, Path(folder), RECIPES[case.name].sparsity)
        longer = trained_on(case, digits, seed, model)
        rows = [stored.row(DENSE, model, plain), stored.row(LONGER, longer, plain)]
        result = retrained(case, digits, seed, model)
        stored = replace(stored, sparsity=result.sparsity)
        state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
        save_plain(state, stored.source)
        rows.append(stored.compressed(PRUNED))
        importance = importances(model, digits)
        for k in means:
            rule = f"*.weight={TREE.format(k=k)}"
            aim = stored.compressed(deep_compression(k), codecs=[rule])
            rows += [aim, smallest_planned(stored, aim, planned(k), importance)]
    return rows


def deep_rows(
    cases: Iterable[str], seeds: Sequence[int], means: Sequence[int] = MEANS, *, processes: int = 2
) -> Iterator[DeepRow]:
    """Run every case that has a recipe, for every seed."""
    jobs = [(case, seed, tuple(means)) for case in cases if case in RECIPES for seed in seeds]
    for number, (_, rows) in enumerate(in_processes(worked, jobs, processes), 1):
        note(f"{number} of {len(jobs)} networks done")
        yield from rows


def _of(rows: Iterable[DeepRow], case: str, what: str) -> list[DeepRow]:
    return [row for row in rows if row.case == case and row.what == what]


def _accuracies(rows: Iterable[DeepRow]) -> tuple[float, float]:
    found = [row.accuracy for row in rows]
    return mean(found), deviation(found)


def deep_sheet(case: str, rows: Sequence[DeepRow]) -> Sheet:
    """Tabulate files: means over the seeds."""
    files = dict.fromkeys(row.what for row in rows if row.case == case)
    columns: Columns = {
        "file": lambda found: found[0].what,
        "zeros": lambda found: f"{found[0].sparsity:.1%}",
        "bytes": lambda found: f"{mean(row.nbytes for row in found):,.0f}",
        "ratio": lambda found: f"{mean(row.ratio for row in found):.1f}×",
        "lowest": lambda found: f"{min(row.ratio for row in found):.1f}×",
        "highest": lambda found: f"{max(row.ratio for row in found):.1f}×",
        "held out, %": lambda found: spread(*_accuracies(found)),
        "training loss": lambda found: f"{mean(row.loss for row in found):.5f}",
    }
    count = len(_of(rows, case, DENSE))
    title = f"{case}: Deep Compression, mean of {count} seeds, every byte of the file counted"
    return Sheet.of(title, [_of(rows, case, what) for what in files], columns)


def deep_limits(rows: Sequence[DeepRow]) -> list[Limit]:
    """Judge ratios, accuracy against the spread of dense networks, and the planner's files."""
    limits = []
    for case in dict.fromkeys(row.case for row in rows):
        dense = [_accuracies(_of(rows, case, what)) for what in (DENSE, LONGER)]
        floor = max(average - apart for average, apart in dense)
        for k in MEANS:
            deep, own = _of(rows, case, deep_compression(k)), _of(rows, case, planned(k))
            if not deep:
                continue
            ratio = mean(row.ratio for row in deep)
            if k == JUDGED_MEANS:
                what = f"{case}, {deep_compression(k)}: lowest ratio"
                worst = min(row.ratio for row in deep)
                limits.append(Limit(what, worst, PUBLISHED[case], at_most=False))
                for name, found in ((deep_compression(k), deep), (planned(k), own)):
                    what = f"{case}, {name}: held out, dense less its spread"
                    limits.append(Limit(what, _accuracies(found)[0], floor, at_most=False))
            own_ratio = mean(row.ratio for row in own)
            limits.append(Limit(f"{case}, {planned(k)}: ratio", own_ratio, ratio, at_most=False))
    return limits
