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
of weights stays within a share of the weights: where the update is large, steps are smaller.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tensorcomp.codecs.rounding import is_real
from tensorcomp.errors import OptionError
from tensorcomp.metrics.distortion import measure
from tensorcomp.planning.budgets import Bound
from tensorcomp.planning.plan import TensorPlan
from tensorcomp.planning.roles.classify import have_role
from tensorcomp.planning.steps import STEP, instantiate

EXACT = "exact"
GUARD = Bound(max_rel_l2=0.05)  # of weights
_SMALLEST = 4096  # elements; fewer are exact
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
        The free step, in root mean squares of the tensor, or of its update.
    of_update : bool
        Whether it codes what is added to a reference.
    bound : Bound or None
    """

    roles: tuple[str, ...]
    template: str
    step: float = 1.0
    of_update: bool = False
    bound: Bound | None = None


def _weights(step: float) -> Lossy:
    return Lossy(_WEIGHTS, f"update(values=trellis({STEP}))", step, True, GUARD)


_FIRST, _SECOND = ("moment.first",), ("moment.second",)
_RANK_1 = Lossy(_SECOND, "rank1")
POLICIES: dict[str, tuple[Lossy, ...]] = {
    EXACT: (),
    "resume": (_weights(0.6), Lossy(_FIRST, f"uniform({STEP})", 2.0), _RANK_1),
    "archive": (
        _weights(2.0),
        Lossy(_FIRST, "magnitude(1, mask=constant, values=raw)"),
        _RANK_1,
    ),
}


def check_policy(name: str) -> None:
    """Require the name of a policy.

    Raises
    ------
    OptionError
        If there is none of this name.
    """
    if name not in POLICIES:
        raise OptionError(f"expected a policy of {', '.join(POLICIES)}, got {name!r:.60}")


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
    return plan_by(POLICIES[policy], f"policy {policy}", role, array, reference)


def plan_by(
    rules: Iterable[Lossy],
    reason: str,
    role: str,
    array: np.ndarray,
    reference: np.ndarray | None,
) -> TensorPlan | None:
    """Return the plan of a tensor by the first rule that takes it."""
    if array.ndim < 2 or array.size < _SMALLEST or not is_real(array.dtype):
        return None
    for lossy in rules:
        if not have_role(lossy.roles, role) or (lossy.of_update and reference is None):
            continue
        sums = measure(array, array if reference is None else reference)
        squares = sums.squared_error if lossy.of_update else sums.x_squared
        size = math.sqrt(squares / max(sums.count, 1))
        if not 0 < size < math.inf:
            return None
        tree = instantiate(lossy.template, lossy.step * size)
        return TensorPlan(tree, reason, lossy.bound)
    return None
