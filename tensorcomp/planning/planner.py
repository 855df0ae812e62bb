"""The planner: a tree for every tensor of a checkpoint, under a profile, rules and a budget.

Under a bound, each tensor gets the tree that takes the fewest bits of a sample within it. Under a
size, the rate and error of every tree are measured on samples, and bits go where they take away the
most error (`curves.allocate`); by default a squared error counts 1 / root mean square of its
tensor, so that steps are proportional to √rms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tensorcomp.checkpoints.checkpoint import TensorInfo
from tensorcomp.codecs.rounding import is_float
from tensorcomp.codecs.tree import Node, readable
from tensorcomp.errors import PlanError
from tensorcomp.planning.budgets import Bound, Budget
from tensorcomp.planning.checkpoint_plan import CheckpointPlan, TensorPlan, listed
from tensorcomp.planning.curves import Options, allocate, least_bits, measure_options
from tensorcomp.planning.lossless import plan_lossless, sample_rows
from tensorcomp.planning.profiles import Profile
from tensorcomp.planning.promise import is_promising
from tensorcomp.planning.rules import Rule
from tensorcomp.planning.steps import fill, is_free, spelled
from tensorcomp.planning.trials import errors_of, first_guess, meet_bound, rms, run_trial
from tensorcomp.threads import Workers

_SAMPLE = 1 << 15  # elements
_DEAR = 0.5  # of a tensor's own bits: a tree that may cost more is compared with lossless
_ROOM = 0.998  # of a size that is aimed at: samples are not the whole


@dataclass(frozen=True)
class Tensor:
    """A tensor to plan: what it is called, what it is for, and its values as codecs see them."""

    info: TensorInfo
    role: str
    array: np.ndarray


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
        names: list[str] = []
        options: list[Options] = []
        importance: list[float] = []
        used: set[Rule] = set()
        weights, fixed_bytes = 0, 0.0
        for tensor, found in workers.in_order(self._look_at, tensors, ahead=8):
            name = tensor.info.name
            weights += tensor.array.size
            used |= {rule for rule in self.rules if rule.selects(name, tensor.role)}
            if isinstance(found, TensorPlan):
                fixed[name] = found
                fixed_bytes += (found.bits or 0.0) * tensor.array.size / 8
            else:
                names.append(name)
                options.append(found)
                importance.append(self._weight(name, found.scale))
        return Draft(
            self,
            fixed,
            tuple(names),
            tuple(options),
            tuple(importance),
            overhead,
            int(fixed_bytes),
            weights,
            frozenset(used),
        )

    def _weight(self, name: str, scale: float) -> float:
        if self.importance is None:
            return 1 / scale if scale else 0.0
        if name not in self.importance:
            raise PlanError(f"the importance of tensor {name!r} is not given")
        return self.importance[name]

    def _look_at(self, tensor: Tensor) -> TensorPlan | Options:
        """Return a tensor's plan, or what there is to choose from under a size."""
        templates, why = self._templates(tensor)
        bound = self.bounds.get(tensor.info.name, self.budget.bound)
        if not templates:
            return replace(TensorPlan(why=why), bits=self._lossless_bits(tensor))
        if not any(is_free(template) for template in templates) and len(templates) == 1:
            return self._fixed(tensor, templates[0], bound, why)
        if bound is None:
            if not self.budget.is_size:
                raise PlanError(f"{templates[0]!r} has a free step: give a budget")
            sample = sample_rows(tensor.array, _SAMPLE)
            return measure_options(
                sample, tensor.array.size, templates, _lossless_rate(tensor.array, self.effort)
            )
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
        if not is_float(tensor.array.dtype):
            return (), "no floats"
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


@dataclass(frozen=True)
class Draft:
    """Plans that are made, and tensors over which a size is still to be spread.

    Parameters
    ----------
    planner : Planner
    fixed : mapping of str to TensorPlan
    names : tuple of str
        The tensors with options.
    options : tuple of Options
    importance : tuple of float
    overhead : int
        Bytes of the file that are no blobs.
    fixed_bytes : int
        Bytes of the tensors whose plans are made.
    weights : int
        Elements of all tensors.
    used : frozenset of Rule
        Rules that select a tensor.
    """

    planner: Planner
    fixed: Mapping[str, TensorPlan]
    names: tuple[str, ...]
    options: tuple[Options, ...]
    importance: tuple[float, ...]
    overhead: int
    fixed_bytes: int
    weights: int
    used: frozenset[Rule]

    def check_rules(self) -> None:
        """Require that every rule and every single bound is for some tensor.

        Raises
        ------
        PlanError
            With the list of those that are not.
        """
        unused = sorted(rule.selector for rule in set(self.planner.rules) - self.used)
        if unused:
            raise PlanError(f"no tensor is selected by {listed(unused)}")
        unknown = sorted(set(self.planner.bounds) - set(self.fixed) - set(self.names))
        if unknown:
            raise PlanError(f"bounds are given for tensors that are not there: {listed(unknown)}")

    def most_bytes(self, input_bytes: int) -> int | None:
        """Return the bytes that the file may have; None if the budget is no size."""
        return self.planner.budget.size(input_bytes, self.weights)

    def least_bytes(self) -> int:
        """Return the bytes of the smallest file that the options allow, about."""
        return self.overhead + self.fixed_bytes + int(least_bits(self.options) / 8)

    def __add__(self, other: Draft) -> Draft:
        """Return the draft of two files together."""
        return Draft(
            self.planner,
            {**self.fixed, **other.fixed},
            self.names + other.names,
            self.options + other.options,
            self.importance + other.importance,
            self.overhead + other.overhead,
            self.fixed_bytes + other.fixed_bytes,
            self.weights + other.weights,
            self.used | other.used,
        )

    def settle(self, most_bytes: int | None, order: Iterable[str]) -> CheckpointPlan:
        """Return the plan whose file takes at most so many bytes, as far as samples tell.

        Raises
        ------
        PlanError
            If even the cheapest options take more.
        """
        plans = dict(self.fixed)
        if self.options and most_bytes is not None:
            available = _ROOM * most_bytes - self.overhead - self.fixed_bytes
            if self.least_bytes() > most_bytes:
                raise PlanError(
                    f"no plan takes at most {most_bytes:,} bytes; the smallest takes about "
                    f"{self.least_bytes():,} ({8 * self.least_bytes() / self.weights:.3g} bits "
                    "per weight)"
                )
            chosen = allocate(self.options, self.importance, 8 * available)
            for name, item, option in zip(self.names, self.options, chosen, strict=True):
                tree = item.tree(option)
                why = "lossless is no larger" if tree is None else f"best at {self.planner.budget}"
                plans[name] = TensorPlan(
                    tree, why, bits=float(item.bits[option]), rel_l2=item.rel_l2(option)
                )
        ordered = {name: plans[name] for name in order}
        return CheckpointPlan(ordered, self.planner.budget, self.planner.effort)

    def can_grow(self, plan: CheckpointPlan) -> bool:
        """Return whether any tensor could still take more bits for less error."""
        return any(
            plan.tensors[name].tree is not None and item.bits.max() > (plan.tensors[name].bits or 0)
            for name, item in zip(self.names, self.options, strict=True)
        )

    def corrected(self, plan: CheckpointPlan, sizes: Mapping[str, int], overhead: int) -> Draft:
        """Return the draft with rates moved to what the tensors really took.

        Parameters
        ----------
        plan : CheckpointPlan
            What was encoded.
        sizes : mapping of str to int
            Bytes of each tensor's blob.
        overhead : int
            Bytes of the file that are no blobs.
        """
        moved = []
        for name, item in zip(self.names, self.options, strict=True):
            bits = plan.tensors[name].bits
            error = 8 * sizes[name] / item.weights - (bits or 0.0)
            moved.append(replace(item, bits=np.maximum(item.bits + error, 0.0)))
        fixed = sum(sizes[name] for name in self.fixed)
        return replace(self, options=tuple(moved), overhead=overhead, fixed_bytes=fixed)


def _within(
    array: np.ndarray, templates: tuple[str, ...], bound: Bound, effort: str, why: str
) -> TensorPlan:
    """Return the plan that takes the fewest bits of a sample within a bound."""
    sample = readable(sample_rows(array, _SAMPLE))
    trees = []
    for template in templates:
        guess = first_guess(template, sample, bound)
        if len(templates) == 1 or is_promising(guess, sample):
            fitted = meet_bound(guess, sample, bound)
            if fitted is not None:
                trees.append(fitted)
    if not trees:
        return TensorPlan(why=f"no tree keeps {bound}")
    tree, bits, rel_l2 = _cheapest(trees, sample)
    if bits is None or bits > _DEAR * 8 * array.itemsize or not _is_ordinary(array, effort):
        lossless = _lossless_rate(array, effort)
        if lossless <= (run_trial(tree, sample).bits if bits is None else bits):  # type: ignore[union-attr]
            return TensorPlan(why=f"lossless is no larger than {bound}")
    return TensorPlan(tree, why, bound, fits_bound=True, bits=bits, rel_l2=rel_l2)


def _cheapest(trees: list[Node], sample: np.ndarray) -> tuple[Node, float | None, float]:
    """Return the tree of fewest bits, those bits, and its error; one tree needs no trial."""
    trials = [trial for tree in trees if (trial := run_trial(tree, sample)) is not None]
    best = min(trials, key=lambda trial: trial.bits)
    return best.tree, best.bits, best.errors.rel_l2


def _is_ordinary(array: np.ndarray, effort: str) -> bool:
    """Return whether a tensor has no structure that a lossless tree would find."""
    return plan_lossless(array, effort).fallback is None


def _lossless_rate(array: np.ndarray, effort: str) -> float:
    """Return the bits of a weight of a sample, coded losslessly."""
    sample = sample_rows(array, _SAMPLE)
    trial = run_trial(plan_lossless(array, effort).tree, sample)
    return 8.0 * array.itemsize if trial is None else trial.bits


__all__ = ["Draft", "Planner", "Tensor", "rms"]
