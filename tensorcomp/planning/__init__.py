"""Which tree for which tensor."""

from tensorcomp.planning.lossless import EFFORTS, Plan, plan_lossless, sample_rows
from tensorcomp.planning.roles import classify

__all__ = ["EFFORTS", "Plan", "classify", "plan_lossless", "sample_rows"]
