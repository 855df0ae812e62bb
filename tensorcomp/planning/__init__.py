"""Which tree for which tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorcomp.lazy import lazy_names

if TYPE_CHECKING:
    from tensorcomp.planning.budgets import Bound, Budget
    from tensorcomp.planning.checkpoint_plan import (
        CheckpointPlan,
        TensorPlan,
        bound_to_json,
        check_names,
        plan_from_json,
        plan_to_json,
    )
    from tensorcomp.planning.draft import Draft
    from tensorcomp.planning.lossless import EFFORTS, Plan, any_tree, plan_lossless, sample_rows
    from tensorcomp.planning.planner import Planner, Tensor
    from tensorcomp.planning.profiles import PROFILES, Profile, load_profile
    from tensorcomp.planning.requests import make_planner
    from tensorcomp.planning.roles import RoleDecision, classify, classify_all, roles_of
    from tensorcomp.planning.rules import Rule, parse_rule

_HOMES = {
    "EFFORTS": "lossless",
    "PROFILES": "profiles",
    "Bound": "budgets",
    "Budget": "budgets",
    "CheckpointPlan": "checkpoint_plan",
    "Draft": "draft",
    "Plan": "lossless",
    "Planner": "planner",
    "Profile": "profiles",
    "RoleDecision": "roles",
    "Rule": "rules",
    "Tensor": "planner",
    "TensorPlan": "checkpoint_plan",
    "any_tree": "lossless",
    "bound_to_json": "checkpoint_plan",
    "check_names": "checkpoint_plan",
    "classify": "roles",
    "classify_all": "roles",
    "load_profile": "profiles",
    "make_planner": "requests",
    "parse_rule": "rules",
    "plan_from_json": "checkpoint_plan",
    "plan_lossless": "lossless",
    "plan_to_json": "checkpoint_plan",
    "roles_of": "roles",
    "sample_rows": "lossless",
}

__all__ = [
    "EFFORTS",
    "PROFILES",
    "Bound",
    "Budget",
    "CheckpointPlan",
    "Draft",
    "Plan",
    "Planner",
    "Profile",
    "RoleDecision",
    "Rule",
    "Tensor",
    "TensorPlan",
    "any_tree",
    "bound_to_json",
    "check_names",
    "classify",
    "classify_all",
    "load_profile",
    "make_planner",
    "parse_rule",
    "plan_from_json",
    "plan_lossless",
    "plan_to_json",
    "roles_of",
    "sample_rows",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
