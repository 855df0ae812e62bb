"""Plans: the tree of every tensor of a checkpoint, in JSON to edit and obey.

::

    {"tensorcomp_plan": 1, "effort": "balanced", "budget": {"min_snr": 30},
     "tensors": {name: {"role": "attention.q", "shape": [384, 384], "dtype": "F32",
                        "tree": "uniform(step=0.01, …)", "tree_crc": 3735928559,
                        "bound": {"max_rel_l2": 0.0316}, "predicted_bytes": 92000,
                        "predicted_rel_l2": 0.0315, "why": "…"}}}

The tree ``lossless`` leaves the choice to the lossless planner, with an ``"effort"`` of the
tensor's own, if it has one. Predictions are for people. Where
``tree_crc`` is not the CRC-32 of the tree's text, the tree was edited, and ``why`` is out of date.
A tensor that was planned with statistics has ``"statistics": true`` and its ``predicted_loss``.
Where weights are to be pruned first, ``"pruned"`` says by what, and how many each tensor loses; who
obeys the plan must prune again. A budget that is a size is kept: should the trees take
more, the steps of all tensors without a bound grow alike. Of a folder in whose files a name occurs
again, the names stand behind their file's path and a colon.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tensorcomp._formatting import listed
from tensorcomp.codecs.text import parse_tree
from tensorcomp.codecs.tree import Node
from tensorcomp.errors import PARSING_ERRORS, PlanError
from tensorcomp.planning.budgets import NO_STATISTICS, Bound, Budget, budget_of
from tensorcomp.planning.lossless import EFFORTS
from tensorcomp.planning.roles.classify import ROLES

if TYPE_CHECKING:
    import numpy as np

    from tensorcomp.planning.calibrated import Calibrated

LOSSLESS = "lossless"
_VERSION = 1
MAKE = "make one by tensorcomp plan"
_SHOWN = 8  # faults that a message lists


@dataclass(frozen=True)
class TensorPlan:
    """Tree of one tensor, and what it must keep.

    Parameters
    ----------
    tree : Node or None
        None leaves the choice to the lossless planner.
    reason : str
        A few words.
    bound : Bound or None
        Limit of the decoded tensor's errors; where the tree breaks it, its steps are made smaller,
        and at last the tensor is stored losslessly.
    fits_bound : bool
        Whether steps may be made larger as well, to use the bound up.
    bits : float or None
        Predicted, per weight.
    rel_l2 : float
        Predicted.
    loss : float or None
        Predicted, in nats a sample; None without statistics.
    by_statistics : bool
        Whether it was made with statistics, and needs them.
    calibrated : Calibrated or None
        Statistics to encode with.
    effort : str
        That of the lossless planner, where it is another than that of the whole; empty if not.
    reference : numpy.ndarray or None
        What its tree codes it against.
    """

    tree: Node | None = None
    reason: str = ""
    bound: Bound | None = None
    fits_bound: bool = False
    bits: float | None = None
    rel_l2: float = 0.0
    loss: float | None = None
    by_statistics: bool = False
    calibrated: Calibrated | None = field(default=None, compare=False, repr=False)
    effort: str = ""
    reference: np.ndarray | None = field(default=None, compare=False, repr=False)

    @property
    def for_output(self) -> bool:
        """Whether errors of the tensor itself have no bound; feedback adds to them."""
        return self.bound is None or self.bound.max_output_error < math.inf


@dataclass(frozen=True)
class Plan:
    """Plans of all tensors, and the budget that they keep together.

    Parameters
    ----------
    tensors : mapping of str to TensorPlan
    budget : Budget
    effort : str
    pruned : str
        By what weights are pruned first, such as ``magnitude, element``; empty if none are.
    """

    tensors: Mapping[str, TensorPlan]
    budget: Budget = field(default_factory=Budget)
    effort: str = "balanced"
    pruned: str = ""

    def of(self, keys: Mapping[str, str]) -> Plan:
        """Return the plan of one file of several, without the budget of all of them.

        Parameters
        ----------
        keys : mapping of str to str
            Names of the tensors of the file in this plan.
        """
        own = {name: self.tensors[key] for name, key in keys.items()}
        return replace(self, tensors=own, budget=Budget())

    def with_statistics(self, calibrated: Mapping[str, Calibrated]) -> Plan:
        """Return the plan whose lossy tensors are encoded with their statistics."""
        tensors = dict(self.tensors)
        for name, item in tensors.items() if calibrated else ():
            if item.tree is None or item.tree.lossless:
                continue
            if name in calibrated:
                tensors[name] = replace(item, calibrated=calibrated[name], by_statistics=True)
            elif item.for_output and NO_STATISTICS not in item.reason:
                tensors[name] = replace(item, reason=f"{item.reason}; {NO_STATISTICS}")
        return replace(self, tensors=tensors)


def plan_to_json(plan: Plan, described: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text of a plan file.

    Parameters
    ----------
    plan : Plan
    described : mapping of str to mapping
        Further entries of each tensor: role, shape, dtype, predicted bytes.
    """
    tensors = {}
    for name, item in plan.tensors.items():
        entry = dict(described.get(name, {}))
        entry["tree"] = LOSSLESS if item.tree is None else item.tree.text
        entry["tree_crc"] = zlib.crc32(entry["tree"].encode())
        if item.bound is not None:
            entry["bound"] = bound_to_json(item.bound)
        if item.loss is not None:
            entry["predicted_loss"] = float(f"{item.loss:.4g}")
        if item.by_statistics:
            entry["statistics"] = True
        if item.effort:
            entry["effort"] = item.effort
        if item.tree is not None and item.loss is None:
            entry["predicted_rel_l2"] = float(f"{item.rel_l2:.4g}")
        entry["why"] = item.reason
        tensors[name] = entry
    value = {
        "tensorcomp_plan": _VERSION,
        "effort": plan.effort,
        "budget": plan.budget.given(),
        **({"pruned": plan.pruned} if plan.pruned else {}),
        "tensors": tensors,
    }
    return json.dumps(value, indent=1, ensure_ascii=False)


def bound_to_json(bound: Bound) -> dict[str, float]:
    """Return the limits of a bound that are set, by name."""
    return {name: value for name, value in vars(bound).items() if value < math.inf}


def plan_from_json(text: str, where: str) -> Plan:
    """Read a plan file.

    Raises
    ------
    PlanError
        If it is not a plan, or a tree in it cannot be understood; the first of these are listed.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{where}: expected a plan in JSON, got {error}; {MAKE}") from error
    if not isinstance(value, dict) or value.get("tensorcomp_plan") != _VERSION:
        raise PlanError(f"{where}: expected a plan of version {_VERSION}, got another; {MAKE}")
    effort, tensors = value.get("effort", "balanced"), value.get("tensors")
    if effort not in EFFORTS or not isinstance(tensors, dict):
        raise PlanError(f"{where}: expected tensors, and an effort of {', '.join(EFFORTS)}")
    pruned = value.get("pruned", "")
    if not isinstance(pruned, str):
        raise PlanError(f"{where}: expected 'pruned' to be like 'magnitude, element'")
    plans, wrong = {}, []
    for name, entry in tensors.items():
        try:
            plans[name] = _tensor_from_json(entry)
        except (PlanError, *PARSING_ERRORS) as error:
            wrong.append(f"{name!r}: {error}")
    if wrong:
        more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise PlanError(f"{where}: {'; '.join(wrong[:_SHOWN])}{more}")
    try:
        budget = budget_of(value.get("budget", {}))
    except PlanError as error:
        raise PlanError(f"{where}: {error}") from error
    return Plan(plans, budget, effort, pruned)


def _tensor_from_json(entry: Any) -> TensorPlan:
    if not isinstance(entry, dict) or not isinstance(entry.get("tree"), str):
        raise PlanError("expected a tree, got none")
    if entry.get("role", "other") not in ROLES:
        raise PlanError(f"expected a role of {', '.join(ROLES)}, got {entry['role']!r}")
    limits, reason = entry.get("bound", {}), str(entry.get("why", ""))
    if not isinstance(limits, dict) or not limits.keys() <= vars(Bound()).keys():
        raise PlanError(f"expected {', '.join(vars(Bound()))} as a bound, got {limits!r:.200}")
    bound = Bound(**limits) if limits else None
    if entry.get("tree_crc") not in (None, zlib.crc32(entry["tree"].encode())):
        reason = "the plan, edited"
    if entry.get("effort", "") not in ("", *EFFORTS):
        raise PlanError(f"expected an effort of {', '.join(EFFORTS)}, got {entry['effort']!r:.60}")
    if entry["tree"] == LOSSLESS:
        return TensorPlan(reason=reason, effort=entry.get("effort", ""))
    by_statistics = entry.get("statistics", False)
    if not isinstance(by_statistics, bool):
        raise PlanError(f"expected statistics to be true or false, got {by_statistics!r:.200}")
    return TensorPlan(parse_tree(entry["tree"]), reason, bound, by_statistics=by_statistics)


def check_names(plan: Plan, names: list[str], where: str) -> None:
    """Require that a plan names every tensor of a checkpoint and no other.

    Raises
    ------
    PlanError
        With the list of those that are missing or unknown.
    """
    unknown = sorted(set(plan.tensors) - set(names))
    missing = sorted(set(names) - set(plan.tensors))
    faults = [f"names tensors that do not exist: {listed(unknown)}"] if unknown else []
    if missing:
        faults.append(f"lacks {listed(missing)}")
    if faults:
        raise PlanError(f"{where}: {'; '.join(faults)}")
