"""Policies: what of a training state is lost, and where each loss ends.

A restore reads weights, Adam's moments and counts of steps. What training goes on from may differ
from what was saved by far less than it costs to store that exactly:

===========  =======================  =====================  ==============
policy       weights                  first moments          second moments
===========  =======================  =====================  ==============
``exact``    exact                    exact                  exact
``resume``   steps of the update      steps of 2 rms         rank 1
``archive``  coarse steps of it       zeros                  rank 1
===========  =======================  =====================  ==============

A step is one of the root mean square of what changed since the base, which a tensor without one has
not: its weights are exact. So is everything else: norms, biases, counts, small tensors. The error
of weights stays within a share of the weights: where the update is large, steps are smaller. What
is decoded of an update is as long, in its own direction, as it was.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tensorcomp.codecs.quantize.update import Update
from tensorcomp.codecs.rounding import is_real
from tensorcomp.codecs.tree import Node
from tensorcomp.metrics.distortion import measure
from tensorcomp.planning.budgets import Bound
from tensorcomp.planning.plan import TensorPlan
from tensorcomp.planning.roles.classify import have_role
from tensorcomp.planning.steps import STEP, instantiate, prototype

EXACT = "exact"
GUARD = Bound(max_rel_l2=0.05)  # of weights
_SMALLEST = 4096  # elements; fewer are exact
# Of the energy of an update, a trellis of one step a root mean square loses this, and a share of it
# by the square of the step; what it keeps is made as much longer, so that no progress is lost.
_LOST, _LEAST_KEPT = 0.0514, 0.75
_WEIGHTS = ("linear", "conv", "embedding", "position", "other")


@dataclass(frozen=True)
class Lossy:
    """Tree of tensors of some roles, its free step, and the bound that it keeps.

    Parameters
    ----------
    roles : tuple of str
        Selectors.
    template : str
        See `steps`.
    step : float
        The free step, in root mean squares of the tensor, or of its update for a tree that uses a
        reference.
    bound : Bound or None
    """

    roles: tuple[str, ...]
    template: str
    step: float = 1.0
    bound: Bound | None = None


def updates_by(step: float, quantizer: str = "trellis", bound: Bound | None = GUARD) -> Lossy:
    """Return the rule of weights in steps of their update."""
    return Lossy(_WEIGHTS, f"update(values={quantizer}({STEP}))", step, bound)


FIRST_MOMENTS = Lossy(("moment.first",), f"uniform({STEP})", 2.0)
NO_FIRST_MOMENTS = Lossy(("moment.first",), "magnitude(1, mask=constant, values=raw)")
RANK_1 = Lossy(("moment.second",), "rank1")
POLICIES: dict[str, tuple[Lossy, ...]] = {
    EXACT: (),
    "resume": (updates_by(0.6), FIRST_MOMENTS, RANK_1),
    "archive": (updates_by(2.0), NO_FIRST_MOMENTS, RANK_1),
}


def policy_plan(
    policy: str, role: str, array: np.ndarray, reference: np.ndarray | None = None
) -> TensorPlan | None:
    """Return the plan of a tensor under a policy; None if it stays exact.

    Parameters
    ----------
    policy : str
        One of `POLICIES`.
    role : str
    array : numpy.ndarray
    reference : numpy.ndarray, optional
        What a decoder has of the base, of the array's shape and type.
    """
    if array.ndim < 2 or array.size < _SMALLEST or not is_real(array.dtype):
        return None
    for lossy in POLICIES[policy]:
        updates = prototype(lossy.template).codec.uses_reference
        if have_role(lossy.roles, role) and not (updates and reference is None):
            sums = measure(array, reference if updates and reference is not None else array)
            squares = sums.squared_error if updates else sums.x_squared
            size = math.sqrt(squares / max(sums.count, 1))
            if not 0 < size < math.inf:
                return None
            step = lossy.step if lossy.bound is None else _guarded(lossy, sums.rel_l2)
            tree = instantiate(lossy.template, step * size)
            if updates:
                gain = 1 / max(1 - _LOST * step**2, _LEAST_KEPT)
                tree = Node(Update(round(gain, 4)), tree.children)
            return TensorPlan(tree, f"policy {policy}", lossy.bound)
    return None


def _guarded(lossy: Lossy, change: float) -> float:
    """Return the step that about keeps the bound of a tensor, by how much of it changed."""
    share = (lossy.bound.max_rel_l2 / change) ** 2 if lossy.bound else math.inf
    return min(lossy.step, math.sqrt(share / (1 + share) / _LOST))
