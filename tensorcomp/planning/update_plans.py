"""Plans of tensors that have a reference, under policies and bounds.

What changed is quantized, where that is less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tensorcomp.metrics.distortion import measure
from tensorcomp.planning.plan import TensorPlan
from tensorcomp.planning.policies import EXACT, policy_plan
from tensorcomp.planning.steps import QUANTIZER, expand_quantizer, instantiate
from tensorcomp.planning.trials import guess_step


@dataclass(frozen=True)
class GivenBase:
    """Plan tensors once their references are known.

    Parameters
    ----------
    policy : str
        One of `POLICIES`.
    of_update : bool
        Whether a relative bound is one of the norm of what changed.
    """

    policy: str = EXACT
    of_update: bool = False

    def plan(
        self,
        plan: TensorPlan | None,
        role: str,
        array: np.ndarray,
        reference: np.ndarray | None,
        effort: str,
    ) -> TensorPlan | None:
        """Return the plan of a tensor, made of that without a reference."""
        if self.policy != EXACT:
            plan = policy_plan(self.policy, role, array, reference)
        elif plan is not None and reference is not None:
            plan = update_plan(plan, array, reference, effort, of_update=self.of_update)
        if plan is None or plan.tree is None or not plan.tree.codec.uses_reference:
            return plan
        return replace(plan, reference=reference)


def update_plan(
    plan: TensorPlan,
    array: np.ndarray,
    reference: np.ndarray,
    effort: str,
    *,
    of_update: bool = False,
) -> TensorPlan:
    """Return the plan of a tensor given its reference, under the same bound.

    An error of what changed is one of the tensor, so that the step stays what it was, and codes
    have less to say. A tensor that is further from its reference than from zero is coded alone.

    Parameters
    ----------
    plan : TensorPlan
        Made without the reference.
    array, reference : numpy.ndarray
        Finite.
    effort : str
    of_update : bool
        Whether a relative bound is one of the norm of what changed.
    """
    tree, bound = plan.tree, plan.bound
    if tree is None or tree.lossless or bound is None or bound.max_output_error < math.inf:
        return plan
    change = measure(array, reference).rel_l2
    if of_update and change < math.inf:
        bound = replace(bound, max_rel_l2=bound.max_rel_l2 * change)
        plan = replace(plan, bound=bound)
    if not change < 1:
        return plan
    if not change:
        return TensorPlan(reason="as its base")
    template = expand_quantizer(f"update(values={QUANTIZER})", effort, bound)
    tree = instantiate(template, guess_step(array, bound))
    reason = f"{plan.reason}, given its base"
    return replace(plan, tree=tree, bound=bound, reason=reason, fits_bound=True)
