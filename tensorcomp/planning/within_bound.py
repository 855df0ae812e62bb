"""One tensor under a bound: the tree that takes the fewest bits of a sample and keeps it."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from tensorcomp.codecs.bit_views import readable
from tensorcomp.planning.budgets import Bound
from tensorcomp.planning.lossless import LosslessPlan, plan_lossless, sample_rows, sparse_sample
from tensorcomp.planning.plan import TensorPlan
from tensorcomp.planning.steps import prototype
from tensorcomp.planning.trials import first_guess, meet_bound, run_trial

SAMPLE = 1 << 15  # elements
_FREE = 1.01  # times the bits of a lossy tree that a lossless one may take
_DEAR = 0.5  # of a tensor's own bits: a tree that may cost more is compared with lossless


def plan_within(
    array: np.ndarray,
    sample: np.ndarray,
    templates: tuple[str, ...],
    bound: Bound,
    effort: str,
    why: str,
) -> TensorPlan:
    """Return the plan that takes the fewest bits of a sample within a bound."""
    sample = readable(sample)
    guesses = [first_guess(template, sample, bound) for template in templates]
    fitted = [
        meet_bound(guess, sample, bound)
        for guess in guesses
        if len(guesses) == 1 or guess.codec.is_promising(sample, array.shape[0])
    ]
    trees = [tree for tree in fitted if tree is not None]
    trials = [trial for tree in trees if (trial := run_trial(tree, sample)) is not None]
    if not trials:
        return TensorPlan(why=f"no tree keeps {bound}")
    best = min(trials, key=lambda trial: trial.bits)
    exact = plan_lossless(array, effort)
    if best.bits > _DEAR * 8 * array.itemsize or not is_dense_float(exact):
        lossless = _rate(exact, array, effort)
        if lossless <= _FREE * best.bits:
            return TensorPlan(why="lossless takes as few bits", bits=lossless)
    rel_l2 = best.errors.rel_l2
    return TensorPlan(best.tree, why, bound, fits_bound=True, bits=best.bits, rel_l2=rel_l2)


def lossy_sample(array: np.ndarray, templates: Iterable[str]) -> np.ndarray:
    """Return rows to try templates on, as many as their codecs need."""
    columns = math.prod(array.shape[1:])
    wanted = [prototype(template).codec.sample_size(columns) for template in templates]
    return sample_rows(array, max([SAMPLE, *wanted]))


def is_dense_float(exact: LosslessPlan) -> bool:
    """Return whether a lossless plan is that of a tensor without structure."""
    return exact.fallback is None and exact.tree.codec.for_any_array


def lossless_rate(array: np.ndarray, effort: str) -> float:
    """Return the bits of a weight of a sample, coded losslessly."""
    return _rate(plan_lossless(array, effort), array, effort)


def _rate(exact: LosslessPlan, array: np.ndarray, effort: str) -> float:
    is_sparse = exact.tree.codec.for_zeros
    sample = sparse_sample(array, effort) if is_sparse else sample_rows(array, SAMPLE)
    trial = run_trial(exact.tree, sample)
    return 8.0 * array.itemsize if trial is None else trial.bits
