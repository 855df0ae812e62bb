"""Plans of tensors that have a reference, under policies and bounds.

What changed is quantized, where that is less.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tensorcomp.metrics.distortion import measure
from tensorcomp.planning.plan import TensorPlan
from tensorcomp.planning.policies import EXACT, policy_plan
from tensorcomp.planning.steps import QUANTIZER, expand_quantizer, instantiate
from tensorcomp.planning.trials import guess_step


def plan_given(
    plan: TensorPlan | None,
    role: str,
    array: np.ndarray,
    reference: np.ndarray | None,
    *,
    effort: str = "balanced",
    policy: str = EXACT,
    of_update: bool = False,
) -> TensorPlan | None:
    """Return the plan of a tensor once its reference is known.

    Parameters
    ----------
    plan : TensorPlan or None
        Made without the reference; not looked at under a policy.
    role : str
    array : numpy.ndarray
    reference : numpy.ndarray or None
    effort : str
    policy : str
        One of `POLICIES`.
    of_update : bool
        Whether a relative bound is one of the norm of what changed.
    """
    if policy != EXACT:
        plan = policy_plan(policy, role, array, reference)
    elif plan is not None and reference is not None:
        plan = _update_plan(plan, array, reference, effort, of_update=of_update)
    if plan is None or plan.tree is None or not plan.tree.codec.uses_reference:
        return plan
    return replace(plan, reference=reference)


def _update_plan(
    plan: TensorPlan, array: np.ndarray, reference: np.ndarray, effort: str, *, of_update: bool
) -> TensorPlan:
    """Return the plan of a tensor given its reference, under the same bound.

    An error of what changed is one of the tensor, so that the step stays what it was, and codes
    have less to say. A tensor that is further from its reference than from zero is coded alone.
    """
    tree, bound = plan.tree, plan.bound
    if tree is None or tree.lossless or bound is None or bound.max_output_error < math.inf:
        return plan
    change = measure(array, reference).rel_l2
    if of_update and change < math.inf:
        bound = replace(bound, max_rel_l2=bound.max_rel_l2 * change)
    if not change:
        return TensorPlan(reason="as its base")
    if not change < 1:
        return replace(plan, bound=bound)
    template = expand_quantizer(f"update(values={QUANTIZER})", effort, bound)
    reason = f"{plan.reason}, given its base"
    return TensorPlan(instantiate(template, guess_step(array, bound)), reason, bound, True)
