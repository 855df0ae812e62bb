"""The planner: a tree for every tensor of a checkpoint, under a profile, rules and a budget.

Under a bound, each tensor gets the tree that takes the fewest bits of a sample within it. Under a
size, the rate and error of every tree are measured on samples, and bits go where they take away the
most error (`curves.allocate`); by default a squared error counts 1 / root mean square of its
tensor, so that steps are proportional to √rms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tensorcomp.checkpoints.checkpoint import TensorInfo
from tensorcomp.codecs.rounding import is_real, peak
from tensorcomp.codecs.tree import readable
from tensorcomp.errors import PlanError
from tensorcomp.planning.budgets import Bound, Budget
from tensorcomp.planning.checkpoint_plan import TensorPlan, listed
from tensorcomp.planning.curves import Options, measure_options
from tensorcomp.planning.draft import Draft
from tensorcomp.planning.lossless import plan_lossless, sample_rows
from tensorcomp.planning.profiles import Profile
from tensorcomp.planning.promise import is_promising
from tensorcomp.planning.rules import Rule
from tensorcomp.planning.steps import fill, is_free, may_lose, spelled
from tensorcomp.planning.trials import errors_of, first_guess, meet_bound, run_trial
from tensorcomp.threads import Workers

_SAMPLE = 1 << 15  # elements
_LARGE_SAMPLE = 1 << 20
_ROWS_A_COLUMN = 2
_FREE = 1.01  # times the bits of a lossy tree that a lossless one may take
_DEAR = 0.5  # of a tensor's own bits: a tree that may cost more is compared with lossless


@dataclass(frozen=True)
class Tensor:
    """A tensor to plan: what it is called, what it is for, and its values as codecs see them.

    Parameters
    ----------
    info : TensorInfo
    role : str
    array : numpy.ndarray
    same_as : str or None
        An earlier tensor that it equals bit for bit: the same file holds such data once.
    """

    info: TensorInfo
    role: str
    array: np.ndarray
    same_as: str | None = None


@dataclass(frozen=True)
class Planner:
    """What decides about every tensor.

    Parameters
    ----------
    profile : Profile
    budget : Budget
    effort : str
    rules : tuple of Rule
        The first one that selects a tensor names its tree.
    bounds : mapping of str to Bound
        Bounds of single tensors, in place of the budget's.
    importance : mapping of str to float, optional
        What a unit of squared error costs in each tensor, under a size.
    predict : bool
        Tell the bits of tensors that stay lossless even where no size depends on them.
    """

    profile: Profile
    budget: Budget
    effort: str = "balanced"
    rules: tuple[Rule, ...] = ()
    bounds: Mapping[str, Bound] = field(default_factory=dict)
    importance: Mapping[str, float] | None = None
    predict: bool = False

    @property
    def is_lossless(self) -> bool:
        """Whether every tensor is left to the lossless planner."""
        return not self.profile.candidates and not self.rules

    def plan(self, tensors: Iterable[Tensor], workers: Workers, overhead: int) -> Draft:
        """Look at every tensor, and return what a size can still be spread over.

        Parameters
        ----------
        tensors : iterable of Tensor
        workers : Workers
        overhead : int
            Bytes of the file that are no blobs.

        Raises
        ------
        PlanError
            If a tree needs a budget that is not there, or a tensor's importance is not given.
        """
        fixed: dict[str, TensorPlan] = {}
        options: dict[str, Options] = {}
        importance: dict[str, float] = {}
        copies: dict[str, str] = {}
        used: set[Rule | str] = set()
        weights, fixed_bytes = 0, 0.0

        def once() -> Iterator[Tensor]:
            nonlocal weights
            asked: dict[str, tuple[object, ...]] = {}
            for tensor in tensors:
                name = tensor.info.name
                weights += math.prod(tensor.info.shape)
                used.update(rule for rule in self.rules if rule.selects(name, tensor.role))
                used.update(self.bounds.keys() & {name})
                asked[name] = (*self._templates(tensor), self.bounds.get(name))
                if tensor.same_as is not None and asked[tensor.same_as] == asked[name]:
                    copies[name] = tensor.same_as
                else:
                    yield tensor

        for tensor, found in workers.in_order(self._look_at, once(), ahead=8):
            name = tensor.info.name
            if isinstance(found, TensorPlan):
                fixed[name] = found
                fixed_bytes += (found.bits or 0.0) * tensor.array.size / 8
            else:
                options[name] = found
                importance[name] = self._weight(name, found.scale)
        for name, first in copies.items():
            if first in options:
                dearest = self._weight(name, options[first].scale)
                importance[first] = max(importance[first], dearest)
        return Draft(
            budget=self.budget,
            effort=self.effort,
            fixed=fixed,
            options=options,
            importance=importance,
            copies=copies,
            overhead=overhead,
            fixed_bytes=int(fixed_bytes),
            weights=weights,
            used=frozenset(used),
        )

    def check_used(self, draft: Draft) -> None:
        """Require that every rule and every single bound is for some tensor of a draft.

        Raises
        ------
        PlanError
            With the list of those that are not.
        """
        unused = [rule.selector for rule in self.rules if rule not in draft.used]
        if unused:
            raise PlanError(f"no tensor is selected by {listed(unused)}")
        unknown = sorted(self.bounds.keys() - draft.used)
        if unknown:
            raise PlanError(f"bounds are given for tensors that are not there: {listed(unknown)}")

    def _weight(self, name: str, scale: float) -> float:
        if self.importance is None:
            return 1 / scale if scale else 0.0
        if name not in self.importance:
            raise PlanError(f"the importance of tensor {name!r} is not given")
        return self.importance[name]

    def _look_at(self, tensor: Tensor) -> TensorPlan | Options:
        """Return a tensor's plan, or what there is to choose from under a size."""
        templates, why = self._templates(tensor)
        largest = peak(tensor.array) if any(map(may_lose, templates)) else 0.0
        if not math.isfinite(largest):
            templates, why = (), "holds NaN or infinity"
        bound = self.bounds.get(tensor.info.name, self.budget.bound)
        if not templates:
            return replace(TensorPlan(why=why), bits=self._lossless_bits(tensor))
        if not any(is_free(template) for template in templates) and len(templates) == 1:
            return self._fixed(tensor, templates[0], bound, why)
        if bound is None:
            if not self.budget.is_size:
                raise PlanError(f"{templates[0]!r} has a free step: give a budget")
            sample = _sample(tensor.array, templates)
            lossless = _lossless_rate(tensor.array, self.effort)
            return measure_options(sample, tensor.array.size, templates, lossless, largest)
        return _within(tensor.array, templates, bound, self.effort, why)

    def _lossless_bits(self, tensor: Tensor) -> float | None:
        """Return the bits of a weight that stays lossless; they count under a size only."""
        if not (self.budget.is_size or self.predict) or not tensor.array.size:
            return None
        return _lossless_rate(tensor.array, self.effort)

    def _templates(self, tensor: Tensor) -> tuple[tuple[str, ...], str]:
        """Return the templates that a tensor is offered, and why these, or why none."""
        info, role, profile = tensor.info, tensor.role, self.profile
        rule = next((r for r in self.rules if r.selects(info.name, role)), None)
        if not is_real(tensor.array.dtype) and (
            rule is None or not rule.by_name or may_lose(rule.tree)
        ):
            return (), "no floats"
        if not tensor.array.size:
            return (), "empty"
        if rule is not None and rule.by_name:
            return (spelled(rule.tree, self.effort),), f"asked for by {rule.selector!r}"
        if profile.protects(role):
            return (), f"{role} is protected"
        if tensor.array.size < profile.smallest:
            return (), f"small: fewer than {profile.smallest} elements"
        if rule is not None:
            return (spelled(rule.tree, self.effort),), "asked for all"
        found = tuple(spelled(tree, self.effort) for tree in profile.trees(role))
        return found, f"profile {profile.name}"

    def _fixed(self, tensor: Tensor, template: str, bound: Bound | None, why: str) -> TensorPlan:
        """Return the plan of a tensor whose tree leaves nothing to choose."""
        tree = fill(template, 1.0)
        sample = readable(sample_rows(tensor.array, _SAMPLE))
        if not self.budget.is_size and not self.predict:
            errors = errors_of(tree, sample)
            return TensorPlan(tree, why, bound, rel_l2=0.0 if errors is None else errors.rel_l2)
        trial = run_trial(tree, sample)
        if trial is None:
            return TensorPlan(tree, why, bound, bits=_lossless_rate(tensor.array, self.effort))
        return TensorPlan(tree, why, bound, bits=trial.bits, rel_l2=trial.errors.rel_l2)


def _within(
    array: np.ndarray, templates: tuple[str, ...], bound: Bound, effort: str, why: str
) -> TensorPlan:
    """Return the plan that takes the fewest bits of a sample within a bound."""
    sample = readable(_sample(array, templates))
    guesses = [first_guess(template, sample, bound) for template in templates]
    fitted = [
        meet_bound(guess, sample, bound)
        for guess in guesses
        if len(guesses) == 1 or is_promising(guess, sample, array.shape[0])
    ]
    trees = [tree for tree in fitted if tree is not None]
    trials = [trial for tree in trees if (trial := run_trial(tree, sample)) is not None]
    if not trials:
        return TensorPlan(why=f"no tree keeps {bound}")
    best = min(trials, key=lambda trial: trial.bits)
    if best.bits > _DEAR * 8 * array.itemsize or not _is_ordinary(array, effort):
        lossless = _lossless_rate(array, effort)
        if lossless <= _FREE * best.bits:
            return TensorPlan(why="lossless takes as few bits", bits=lossless)
    rel_l2 = best.errors.rel_l2
    return TensorPlan(best.tree, why, bound, fits_bound=True, bits=best.bits, rel_l2=rel_l2)


def _sample(array: np.ndarray, templates: Iterable[str]) -> np.ndarray:
    """Return rows to try templates on; many where directions of rows are to be learned from them.

    From few rows more would be learned than holds for the others.
    """
    elements = _SAMPLE
    if any(template.startswith("rotate") for template in templates):
        columns = math.prod(array.shape[1:])
        elements = min(max(_ROWS_A_COLUMN * columns * columns, _SAMPLE), _LARGE_SAMPLE)
    return sample_rows(array, elements)


def _is_ordinary(array: np.ndarray, effort: str) -> bool:
    """Return whether a tensor has no structure that a lossless tree would find."""
    return plan_lossless(array, effort).fallback is None


def _lossless_rate(array: np.ndarray, effort: str) -> float:
    """Return the bits of a weight of a sample, coded losslessly."""
    sample = sample_rows(array, _SAMPLE)
    trial = run_trial(plan_lossless(array, effort).tree, sample)
    return 8.0 * array.itemsize if trial is None else trial.bits
