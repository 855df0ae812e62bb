"""The planner: a tree for every tensor of a checkpoint, under a profile, rules and a budget.

Under a bound, each tensor gets the tree that takes the fewest bits of a sample within it. Under a
size, the rate and error of every tree are measured on samples, and bits go where they take away the
most error (`allocation.allocate`); by default a squared error counts 1 / root mean square of its
tensor, so that steps are proportional to √rms.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tensorcomp._threads import Workers
from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.codecs.bit_views import readable
from tensorcomp.codecs.rounding import is_real, peak
from tensorcomp.errors import PlanError
from tensorcomp.planning.allocation_problem import AllocationProblem
from tensorcomp.planning.budgets import Bound, Budget
from tensorcomp.planning.lossless import sample_rows, share_of_zeros, sparse_sample
from tensorcomp.planning.plan import TensorPlan, listed
from tensorcomp.planning.profiles import Profile
from tensorcomp.planning.rate_distortion import RDCurve, measure_curve
from tensorcomp.planning.roles.classify import SELECTORS, is_selector
from tensorcomp.planning.rules import Rule
from tensorcomp.planning.sparse_forms import MANY, zero_keeping
from tensorcomp.planning.steps import expand_quantizer, is_free, may_lose, prototype
from tensorcomp.planning.trials import (
    SAMPLE,
    errors_of,
    lossless_rate,
    lossy_sample,
    plan_within,
    run_trial,
)

_ROOM = 1 << 26  # bytes of copies a thread
_LEAST_SCALE = 1e-300  # below, the reciprocal times a square may leave the range of float64
_SMALL = 1 << 15  # elements; handing fewer to a thread costs more than looking at them


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
    copied_bytes : int
        Memory that the array takes; none if it is a view of a file.
    """

    info: TensorInfo
    role: str
    array: np.ndarray
    same_as: str | None = None
    copied_bytes: int = 0


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

    def plan(self, tensors: Iterable[Tensor], workers: Workers, overhead: int) -> AllocationProblem:
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
        options: dict[str, RDCurve] = {}
        importance: dict[str, float] = {}
        copies: dict[str, str] = {}
        used: set[Rule | str] = set()
        protected: Counter[str] = Counter()
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

        for tensor, found in workers.in_order(
            self._look_at,
            once(),
            small=lambda tensor: tensor.array.size < _SMALL,
            prefetch=8,
            size=lambda tensor: tensor.copied_bytes,
            memory_budget=_ROOM,
        ):
            name = tensor.info.name
            if isinstance(found, TensorPlan):
                fixed[name] = found
                nbytes = (found.bits or 0.0) * tensor.array.size / 8
                fixed_bytes += nbytes
                if found.tree is None:
                    protected[tensor.role.partition(".")[0]] += int(nbytes)
            else:
                options[name] = found
                importance[name] = self._weight(name, found.scale)
        for name, first in copies.items():
            if first in options:
                dearest = self._weight(name, options[first].scale)
                importance[first] = max(importance[first], dearest)
        return AllocationProblem(
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
            protected=protected,
        )

    def check_used(self, draft: AllocationProblem) -> None:
        """Require that every rule and every single bound is for some tensor of a draft.

        Raises
        ------
        PlanError
            With the list of those that are not.
        """
        unused = [rule.selector for rule in self.rules if rule not in draft.used]
        if unused:
            known = ""
            if not all(map(is_selector, unused)):
                known = f"; give a name, a pattern of names, or a role: {', '.join(SELECTORS)}"
            raise PlanError(f"no tensor is selected by {listed(unused)}{known}")
        unknown = sorted(self.bounds.keys() - draft.used)
        if unknown:
            raise PlanError(f"bounds are given for tensors that are not there: {listed(unknown)}")

    def _weight(self, name: str, scale: float) -> float:
        if self.importance is None:
            return 1 / max(scale, _LEAST_SCALE) if scale else 0.0
        if name not in self.importance:
            raise PlanError(f"the importance of tensor {name!r} is not given")
        return self.importance[name]

    def _look_at(self, tensor: Tensor) -> TensorPlan | RDCurve:
        """Return a tensor's plan, or what there is to choose from under a size."""
        templates, why = self._templates(tensor)
        largest = peak(tensor.array) if any(map(may_lose, templates)) else 0.0
        if not math.isfinite(largest):
            templates, why = (), "holds NaN or infinity"
        bound = self._bound(tensor)
        sample = lossy_sample(tensor.array, templates)
        if templates and self._rule(tensor) is None and share_of_zeros(tensor.array) > MANY:
            sample = sparse_sample(tensor.array, self.effort)
            templates = zero_keeping(templates, tensor.array, sample, self.effort)
            why = f"{why}, zeros kept" if templates else "no tree keeps its zeros"
        if not templates:
            return replace(TensorPlan(why=why), bits=self._lossless_bits(tensor))
        if not any(is_free(template) for template in templates) and len(templates) == 1:
            return self._fixed(tensor, templates[0], bound, why)
        if bound is not None:
            return plan_within(tensor.array, sample, templates, bound, self.effort, why)
        if not self.budget.is_size:
            raise PlanError(f"{templates[0]!r} has a free step: give a budget")
        lossless = lossless_rate(tensor.array, self.effort)
        return measure_curve(sample, tensor.array.size, templates, lossless, largest)

    def _lossless_bits(self, tensor: Tensor) -> float | None:
        """Return the bits of a weight that stays lossless; they count under a size only."""
        if not (self.budget.is_size or self.predict) or not tensor.array.size:
            return None
        return lossless_rate(tensor.array, self.effort)

    def _templates(self, tensor: Tensor) -> tuple[tuple[str, ...], str]:
        """Return the templates that a tensor is offered, and why these, or why none."""
        role, profile, rule = tensor.role, self.profile, self._rule(tensor)
        bound = self._bound(tensor)
        if not is_real(tensor.array.dtype) and (
            rule is None or not rule.by_name or may_lose(rule.tree)
        ):
            return (), "no floats"
        if not tensor.array.size:
            return (), "empty"
        if rule is not None and rule.by_name:
            return (
                expand_quantizer(rule.tree, self.effort, bound),
            ), f"asked for by {rule.selector!r}"
        if profile.protects(role):
            return (), f"{role} is protected"
        if tensor.array.size < profile.smallest:
            return (), f"small: fewer than {profile.smallest} elements"
        if rule is not None:
            return (expand_quantizer(rule.tree, self.effort, bound),), "asked for all"
        found = tuple(expand_quantizer(tree, self.effort, bound) for tree in profile.trees(role))
        return found, f"profile {profile.name}"

    def _bound(self, tensor: Tensor) -> Bound | None:
        return self.bounds.get(tensor.info.name, self.budget.bound)

    def _rule(self, tensor: Tensor) -> Rule | None:
        """Return the rule that names a tensor's tree, if any does."""
        return next((r for r in self.rules if r.selects(tensor.info.name, tensor.role)), None)

    def _fixed(self, tensor: Tensor, template: str, bound: Bound | None, why: str) -> TensorPlan:
        """Return the plan of a tensor whose tree leaves nothing to choose."""
        tree = prototype(template)
        sample = readable(sample_rows(tensor.array, SAMPLE))
        if not self.budget.is_size and not self.predict:
            errors = errors_of(tree, sample)
            return TensorPlan(tree, why, bound, rel_l2=0.0 if errors is None else errors.rel_l2)
        trial = run_trial(tree, sample)
        if trial is None:
            return TensorPlan(tree, why, bound, bits=lossless_rate(tensor.array, self.effort))
        return TensorPlan(tree, why, bound, bits=trial.bits, rel_l2=trial.errors.rel_l2)
