"""Plan a tree for every tensor, under a profile, rules and a budget.

Under a bound, each tensor gets the tree that takes the fewest bits of a sample within it. Under a
size, the rate and error of every tree are measured on samples, and bits go where they take away the
most error (`allocation.allocate`); by default a squared error counts 1 / root mean square of its
tensor, so that steps are proportional to √rms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from tensorcomp._formatting import listed
from tensorcomp._threads import Workers
from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.codecs.bit_views import readable
from tensorcomp.codecs.rounding import is_real, peak
from tensorcomp.errors import PlanError
from tensorcomp.planning.allocation import AllocationProblem
from tensorcomp.planning.budgets import NO_STATISTICS, Bound, Budget
from tensorcomp.planning.calibrated import Calibrated, calibrated_curve, closest_option
from tensorcomp.planning.lossless import plan_lossless, sample_rows, share_of_zeros, sparse_sample
from tensorcomp.planning.outliers import curve_with_outliers, plan_with_outliers
from tensorcomp.planning.plan import TensorPlan
from tensorcomp.planning.profiles import PROFILES, Profile, Rule
from tensorcomp.planning.rate_distortion import RDCurve, measure_curve
from tensorcomp.planning.roles.classify import (
    BUT,
    SELECTORS,
    have_role,
    is_selector,
    protected_by_value,
)
from tensorcomp.planning.small_curves import SmallCurves
from tensorcomp.planning.sparse_forms import MANY, zero_keeping
from tensorcomp.planning.steps import expand_quantizer, is_free, may_lose, prototype
from tensorcomp.planning.trials import (
    SAMPLE,
    errors_of,
    exact_plan,
    guess_step,
    has_extremes,
    has_structure,
    lossless_rate,
    lossy_sample,
    plan_within,
    run_trial,
)

_ROOM = 1 << 26  # bytes of copies a thread
_MIN_SCALE = 1e-300  # below, the reciprocal times a square may leave the range of float64
_SMALL = 1 << 15  # elements; handing fewer to a thread costs more than looking at them


@dataclass(frozen=True)
class Tensor:
    """Tensor to plan.

    Parameters
    ----------
    info : TensorInfo
    role : str
    array : numpy.ndarray
        As codecs see it.
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
    """Everything that decides about a tensor.

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
        Cost of a unit of squared error in each tensor, under a size.
    calibrated : mapping of str to Calibrated
        Statistics of tensors, by name.
    predict : bool
        Predict the bits of tensors that stay lossless even where no size depends on them.
    """

    profile: Profile
    budget: Budget
    effort: str = "balanced"
    rules: tuple[Rule, ...] = ()
    bounds: Mapping[str, Bound] = field(default_factory=dict)
    importance: Mapping[str, float] | None = None
    calibrated: Mapping[str, Calibrated] = field(default_factory=dict)
    predict: bool = False

    @property
    def is_lossless(self) -> bool:
        """Whether every tensor is left to the lossless planner."""
        return not (self.profile.candidates or self.profile.thorough or self.rules)

    def plan(self, tensors: Iterable[Tensor], workers: Workers) -> AllocationProblem:
        """Plan every tensor, and measure what a size is still to be spread over.

        Parameters
        ----------
        tensors : iterable of Tensor
        workers : Workers

        Raises
        ------
        PlanError
            If a tree needs a budget and there is none, or a tensor's importance is not given.
        """
        offered = self.profile.name if self.profile.candidates else "transformer"
        problem = AllocationProblem(
            self.budget, self.effort, profile=offered if offered in PROFILES else ""
        )
        choices: dict[str, tuple[tuple[str, ...], str, Bound | None]] = {}
        curves = SmallCurves()

        def different() -> Iterator[Tensor]:
            for tensor in tensors:
                name, first = tensor.info.name, tensor.same_as
                problem.weights += math.prod(tensor.info.shape)
                problem.used.update(rule for rule in self.rules if rule.knows(name, tensor.role))
                problem.used.update(self.bounds.keys() & {name})
                choices[name] = (*self._templates(tensor), self.bounds.get(name))
                if first is not None and choices[first] == choices[name]:
                    problem.copies[name] = first
                else:
                    yield tensor

        for tensor, found in workers.in_order(
            lambda tensor: self._look_at(tensor, *choices[tensor.info.name][:2], curves),
            different(),
            small=lambda tensor: tensor.array.size < _SMALL,
            prefetch=8,
            size=lambda tensor: tensor.copied_bytes,
            memory_budget=_ROOM,
        ):
            name = tensor.info.name
            if isinstance(found, RDCurve):
                problem.options[name] = found
                problem.importance[name] = self._weight(name, found)
                continue
            problem.fixed[name] = found
            nbytes = (found.bits or 0.0) * tensor.array.size / 8
            problem.fixed_bytes += nbytes
            if found.tree is None:
                problem.protected[tensor.role.partition(".")[0]] += int(nbytes)
        for name, first in problem.copies.items():
            if first in problem.options:
                dearest = self._weight(name, problem.options[first])
                problem.importance[first] = max(problem.importance[first], dearest)
        problem.fixed_bytes = int(problem.fixed_bytes)
        return problem

    def check_used(self, problem: AllocationProblem) -> None:
        """Require that every rule and every bound by name is for some tensor.

        Raises
        ------
        PlanError
            With the list of those that are not.
        """
        unused = [rule.selector for rule in self.rules if rule not in problem.used]
        if unused:
            known = ""
            if not all(is_selector(selector.removeprefix(BUT)) for selector in unused):
                known = f"; give a name, a pattern of names, or a role: {', '.join(SELECTORS)}"
            raise PlanError(f"expected rules that select a tensor, got {listed(unused)}{known}")
        unknown = sorted(self.bounds.keys() - problem.used)
        if unknown:
            raise PlanError(f"expected bounds of tensors that exist, got {listed(unknown)}")

    def _weight(self, name: str, curve: RDCurve) -> float:
        if curve.cost is not None:
            return curve.cost
        if self.importance is None:
            return 1 / max(curve.scale, _MIN_SCALE) if curve.scale else 0.0
        if name not in self.importance:
            raise PlanError(f"expected the importance of every tensor, got none of {name!r}")
        return self.importance[name]

    def _look_at(
        self, tensor: Tensor, templates: tuple[str, ...], reason: str, curves: SmallCurves
    ) -> TensorPlan | RDCurve:
        """Return a tensor's plan, or its choices under a size."""
        rule, name = self._rule(tensor), tensor.info.name
        asked_for = rule is not None and rule.by_name
        if templates and not asked_for and (why := protected_by_value(tensor.array, tensor.role)):
            templates, reason = (), why
        largest = peak(tensor.array) if any(map(may_lose, templates)) else 0.0
        if not math.isfinite(largest):
            templates, reason = (), "holds NaN or infinity"
        bound = self._bound(tensor)
        by_output = bound is not None and bound.max_output_error < math.inf
        if templates and by_output and name not in self.calibrated:
            templates, reason = (), NO_STATISTICS
        sample = lossy_sample(tensor.array, templates)
        if templates and rule is None and share_of_zeros(tensor.array) > MANY:
            sample = sparse_sample(tensor.array, self.effort)
            templates = zero_keeping(templates, tensor.array, sample, self.effort)
            reason = f"{reason}, zeros kept" if templates else "no tree keeps its zeros"
        if not templates:
            counts = (self.budget.is_size or self.predict) and tensor.array.size
            dtype = tensor.info.dtype
            own = "max" if have_role(self.profile.thorough, tensor.role) else ""
            bits = lossless_rate(tensor.array, own or self.effort, dtype) if counts else None
            return TensorPlan(reason=reason, bits=bits, effort=own)
        if not any(is_free(template) for template in templates) and len(templates) == 1:
            return self._fixed(tensor, templates[0], bound, reason)
        sized = bound is None and self.budget.is_size
        if name in self.calibrated and (by_output or sized) and any(map(is_free, templates)):
            return self._calibrated(tensor, templates, bound, reason, largest)
        if bound is not None:
            given = (tensor.array, sample, templates, bound, self.effort, reason)
            if has_extremes(sample, largest, guess_step(sample, bound)):
                return plan_with_outliers(*given, largest)
            return plan_within(*given)
        if not self.budget.is_size:
            raise PlanError(f"expected a budget for the free step of {templates[0]!r}, got none")
        if has_extremes(sample, largest):
            lossless = lossless_rate(tensor.array, self.effort)
            return curve_with_outliers(tensor.array, sample, templates, lossless, largest)
        if SmallCurves.suits(tensor.array):
            return curves.curve(tensor.array, sample, templates, largest, self.effort)
        lossless = lossless_rate(tensor.array, self.effort)
        return measure_curve(sample, tensor.array.size, templates, lossless, largest)

    def _calibrated(
        self,
        tensor: Tensor,
        templates: tuple[str, ...],
        bound: Bound | None,
        reason: str,
        largest: float,
    ) -> TensorPlan | RDCurve:
        """Return the plan of a tensor with statistics, or its choices under a size."""
        lossless = lossless_rate(tensor.array, self.effort)
        calibrated = self.calibrated[tensor.info.name]
        curve = calibrated_curve(tensor.array, calibrated, templates, lossless, largest)
        if bound is None:
            return curve
        option = closest_option(tensor.array, calibrated, curve, bound.max_output_error)
        bits, loss = float(curve.bits[option]), curve.loss(option)
        return TensorPlan(curve.tree(option), reason, bound, True, bits, loss=loss)

    def _templates(self, tensor: Tensor) -> tuple[tuple[str, ...], str]:
        """Return the templates that a tensor is offered, and why these, or why none."""
        role, profile, rule = tensor.role, self.profile, self._rule(tensor)
        asked_for = rule is not None and rule.by_name
        if not is_real(tensor.array.dtype) and (
            rule is None or not asked_for or may_lose(rule.tree)
        ):
            return (), "no floats"
        if not tensor.array.size:
            return (), "empty"
        if not asked_for and profile.protects(role):
            return (), f"{role} is protected"
        if not asked_for and tensor.array.size < profile.smallest:
            return (), f"small: fewer than {profile.smallest} elements"
        trees, reason = profile.trees(role), f"profile {profile.name}"
        if rule is not None:
            trees = (rule.tree,)
            reason = f"asked for by {rule.selector!r}" if asked_for else "asked for all"
        bound = self._bound(tensor)
        return tuple(expand_quantizer(tree, self.effort, bound) for tree in trees), reason

    def _bound(self, tensor: Tensor) -> Bound | None:
        return self.bounds.get(tensor.info.name, self.budget.bound)

    def _rule(self, tensor: Tensor) -> Rule | None:
        """Return the rule that names a tensor's tree, if any does."""
        return next((r for r in self.rules if r.selects(tensor.info.name, tensor.role)), None)

    def _fixed(self, tensor: Tensor, template: str, bound: Bound | None, reason: str) -> TensorPlan:
        """Return the plan of a tensor whose tree leaves nothing to choose."""
        tree = prototype(template)
        sample = readable(sample_rows(tensor.array, SAMPLE))
        rule = self._rule(tensor)
        if not tree.lossless and not (rule is not None and rule.by_name):
            exact = plan_lossless(tensor.array, self.effort)
            trial = run_trial(tree, sample) if has_structure(tensor.array, exact) else None
            kept = trial and exact_plan(tensor.array, exact, self.effort, trial.bits)
            if kept:
                return kept
        if not self.budget.is_size and not self.predict:
            errors = errors_of(tree, sample)
            return TensorPlan(tree, reason, bound, rel_l2=0.0 if errors is None else errors.rel_l2)
        trial = run_trial(tree, sample)
        if trial is None:
            return TensorPlan(tree, reason, bound, bits=lossless_rate(tensor.array, self.effort))
        return TensorPlan(tree, reason, bound, bits=trial.bits, rel_l2=trial.errors.rel_l2)
