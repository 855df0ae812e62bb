"""Measure rate and error of trees on samples, and fit steps to a bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple, TypeAlias, cast

import numpy as np

from tensorcomp.codecs.base import Transform
from tensorcomp.codecs.bit_views import readable
from tensorcomp.codecs.payload import approximate, byte_count, encode_seen
from tensorcomp.codecs.rounding import peak, work_dtype
from tensorcomp.codecs.tree import Node, fit
from tensorcomp.errors import NotRepresentable
from tensorcomp.metrics.distortion import ErrorSums, measure
from tensorcomp.planning.budgets import Bound
from tensorcomp.planning.lossless import (
    LosslessPlan,
    has_few_values,
    plan_lossless,
    sample_rows,
    sparse_sample,
)
from tensorcomp.planning.plan import TensorPlan
from tensorcomp.planning.steps import has_free_step, instantiate, prototype, scale_steps

SAMPLE = 1 << 15  # elements
_FREE = 1.01  # times the bits of a lossy tree that a lossless one may take
FAR = 64.0  # times that of the others: an outlier
BEYOND = 32_000.0  # steps that the codes of a quantizer may not reach
_DEAR = 0.5  # of a tensor's own bits: a tree that may cost more is compared with lossless

_CLOSE = 0.9975  # of a bound: 0.004 bit a weight
_AIM = 0.9988
_ATTEMPTS = 10
_STRIDE = 1024.0  # times that a step may grow at once

ErrorsOf: TypeAlias = Callable[[Node], "ErrorSums | None"]


class Trial(NamedTuple):
    """Bits per weight and errors of a tree on a sample; payloads only."""

    tree: Node
    bits: float
    errors: ErrorSums


def run_trial(tree: Node, sample: np.ndarray) -> Trial | None:
    """Return the rate and error of a tree on a sample, None if it cannot apply."""
    array = readable(sample)
    try:
        pieces, decoded = encode_seen(tree, array, fit(tree, array))
    except NotRepresentable:
        return None
    bits = 8 * byte_count(pieces) / max(array.size, 1)
    return Trial(tree, bits, measure(array, decoded))


def errors_of(
    tree: Node, array: np.ndarray, reference: np.ndarray | None = None
) -> ErrorSums | None:
    """Return the error of a tree on an array; None if it cannot represent it."""
    array = readable(array)
    try:
        shared = fit(tree, array, reference)
        return measure(array, approximate(tree, array, shared, reference=reference))
    except NotRepresentable:
        return None


def with_extreme(array: np.ndarray, largest: float) -> np.ndarray | None:
    """Return rows that hold the extreme; None if they do already."""
    if not array.size or peak(array) >= largest:
        return None
    changed = sample_rows(array, 1).copy()
    changed.reshape(-1)[0] = largest
    return readable(changed)


def has_extremes(sample: np.ndarray, largest: float, step: float = math.inf) -> bool:
    """Return whether the largest magnitude is far from others or from a step.

    The mean is a quick look: where it is larger there are too many outliers.
    """
    if not largest:
        return False
    magnitudes = np.abs(sample.astype(work_dtype(sample.dtype)))
    mean = largest * float((magnitudes / largest).mean(dtype=np.float64))
    return largest > min(FAR * mean, BEYOND * step)


def can_take(tree: Node, array: np.ndarray) -> bool:
    """Return whether a tree can represent an array."""
    array = readable(array)
    try:
        own, _ = fit(tree, array)
        if not tree.lossless:
            cast(Transform, tree.codec).encode(array, own)
    except NotRepresentable:
        return False
    return True


def meet_bound(tree: Node, array: np.ndarray, bound: Bound) -> Node | None:
    """Return the tree, steps scaled so that an array's error just keeps a bound.

    Parameters
    ----------
    tree : Node
        Its steps are the first guess.
    array : numpy.ndarray
        The tensor, a chunk or a sample of it.
    bound : Bound
    """
    return fit_steps(tree, bound, lambda candidate: errors_of(candidate, array))


def fit_steps(tree: Node, bound: Bound, errors: ErrorsOf) -> Node | None:
    """Return the tree with its steps scaled so that its error just keeps a bound.

    A tree without steps is returned as it is, if it keeps the bound. None if no step does.

    Parameters
    ----------
    tree : Node
        Its steps are the first guess.
    bound : Bound
    errors : callable
        Returns the errors that a tree makes; None if it cannot represent what it is tried on.
    """
    best: Node | None = None
    best_used = 0.0
    for used, candidate in _attempts(tree, bound, errors):
        if best_used <= used <= 1:
            best, best_used = candidate, used
        if _CLOSE <= used <= 1:
            break
    return best


def _attempts(tree: Node, bound: Bound, errors: ErrorsOf) -> Iterator[tuple[float, Node]]:
    """Yield ever better trees and the shares of the bound that they use.

    Error is nearly proportional to the step; the exponent is learned from the attempts. Once the
    bound is bracketed the step stays within the bracket.
    """
    exponent, scale = 1.0, 1.0
    low, high = 0.0, math.inf  # scales that keep the bound or are too fine, and that break it
    before: tuple[float, float] | None = None
    for _ in range(_ATTEMPTS):
        candidate = tree if scale == 1 else scale_steps(tree, scale)
        found = errors(candidate)
        if found is None:
            if high == math.inf:
                return
            low = max(low, scale)  # too fine
            scale = math.sqrt(low * high)
            continue
        used = bound.used(found.rel_l2, found.max_abs, found.output_error)
        yield used, candidate
        if not has_free_step(tree) or used == 0:
            return
        if used <= 1:
            low = max(low, scale)
        else:
            high = min(high, scale)
        if before is not None and scale != before[0]:
            if used == before[1] <= 1:
                return  # nothing is left to lose
            if used != before[1] and math.isfinite(used * before[1]):
                slope = math.log(used / before[1]) / math.log(scale / before[0])
                exponent = min(max(slope, 0.25), 2.0)
        before = scale, used
        room = min(_AIM / used, _STRIDE**exponent)  # before it may leave the range of float64
        scale *= room ** (1 / exponent)
        if high < math.inf and not low < scale < high:
            scale = math.sqrt(low * high) if low else high / 2
        if scale < 1e-12:
            return


def guess_step(array: np.ndarray, bound: Bound) -> float:
    """Return the step that a fine uniform quantizer would need."""
    scale = rms(array)
    step = 4 * scale or 1.0
    if bound.max_rel_l2 < math.inf:
        step = min(step, math.sqrt(12) * bound.max_rel_l2 * scale)
    return min(step, 2 * bound.max_abs_error)


def first_guess(template: str, array: np.ndarray, bound: Bound) -> Node:
    """Return the tree of a template with that step."""
    return instantiate(template, guess_step(array, bound))


def bound_of_sample(array: np.ndarray, sample: np.ndarray, bound: Bound) -> Bound:
    """Return the bound of a sample that stands for that of the whole array."""
    scale = rms(sample)
    if not scale or bound.max_rel_l2 == math.inf:
        return bound
    return replace(bound, max_rel_l2=bound.max_rel_l2 * rms(array) / scale)


def rms(array: np.ndarray) -> float:
    """Return the root of the mean square of an array's finite values."""
    sums = measure(array, array)
    return sums.norm / math.sqrt(max(sums.count, 1))


def plan_within(
    array: np.ndarray,
    sample: np.ndarray,
    templates: tuple[str, ...],
    bound: Bound,
    effort: str,
    reason: str,
) -> TensorPlan:
    """Return the plan that takes the fewest bits of a sample within a bound."""
    sample = readable(sample)
    trials = []
    for template in templates:
        alone = len(templates) == 1
        if not alone and not prototype(template).codec.is_promising(sample, array.shape[0]):
            continue
        tree = meet_bound(first_guess(template, sample, bound), sample, bound)
        trial = None if tree is None else run_trial(tree, sample)
        if trial is not None:
            trials.append(trial)
    if not trials:
        return TensorPlan(reason=f"no tree keeps {bound}")
    best = min(trials, key=lambda trial: trial.bits)
    kept = exact_plan(array, plan_lossless(array, effort), effort, best.bits)
    if kept is not None:
        return kept
    rel_l2 = best.errors.rel_l2
    return TensorPlan(best.tree, reason, bound, fits_bound=True, bits=best.bits, rel_l2=rel_l2)


def exact_plan(
    array: np.ndarray, exact: LosslessPlan, effort: str, bits: float
) -> TensorPlan | None:
    """Return the plan to keep every bit, where that takes no more bits."""
    if bits <= _DEAR * 8 * array.itemsize and not has_structure(array, exact):
        return None
    lossless = rate_of(exact, array, effort)
    if lossless > _FREE * bits:
        return None
    return TensorPlan(reason="lossless takes as few bits", bits=lossless)


def has_structure(array: np.ndarray, exact: LosslessPlan) -> bool:
    """Return whether exact coding may take few bits: zeros, few values, a grid."""
    return not is_dense_float(exact) or has_few_values(array)


def lossy_sample(array: np.ndarray, templates: Iterable[str]) -> np.ndarray:
    """Return rows to try templates on, as many as their codecs need."""
    columns = math.prod(array.shape[1:])
    wanted = [prototype(template).codec.sample_size(columns) for template in templates]
    return sample_rows(array, max([SAMPLE, *wanted]))


def is_dense_float(exact: LosslessPlan) -> bool:
    """Return whether a lossless plan is that of a tensor without structure."""
    return exact.fallback is None and exact.tree.codec.for_any_array


def lossless_rate(array: np.ndarray, effort: str, dtype: str = "") -> float:
    """Return the bits per weight of a sample that is coded losslessly."""
    return rate_of(plan_lossless(array, effort, dtype), array, effort)


def rate_of(exact: LosslessPlan, array: np.ndarray, effort: str) -> float:
    """Return the bits per weight of a sample under a lossless plan."""
    is_sparse = exact.tree.codec.for_zeros
    sample = sparse_sample(array, effort) if is_sparse else sample_rows(array, SAMPLE)
    trial = run_trial(exact.tree, sample)
    return 8.0 * array.itemsize if trial is None else trial.bits
