"""What a user asks for, turned into a planner."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from tensorcomp.checkpoints.open import open_checkpoint
from tensorcomp.codecs.rounding import is_float
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.errors import PlanError
from tensorcomp.planning.budgets import Bound, Budget
from tensorcomp.planning.lossless import EFFORTS
from tensorcomp.planning.plan import listed
from tensorcomp.planning.planner import Planner
from tensorcomp.planning.profiles import Profile, load_profile
from tensorcomp.planning.rules import Rule, parse_rule

_USUAL = "transformer"  # the profile of who gives a budget and no profile


def make_planner(
    *,
    profile: str | Profile | None = None,
    budget: Budget | None = None,
    codecs: str | Rule | Iterable[str | Rule] = (),
    bounds: Mapping[str, Budget] | None = None,
    importance: str | os.PathLike[str] | Mapping[str, float] | None = None,
    effort: str | None = None,
) -> Planner:
    """Return the planner of what was asked for.

    Parameters
    ----------
    profile : str or Profile, optional
        By default ``lossless``; ``transformer`` where a budget is given and no tree.
    budget : Budget, optional
        By default the profile's.
    codecs : str, Rule or iterable of them
        ``SELECTOR=TREE``, see `rules`.
    bounds : mapping of str to Budget, optional
        Bounds of single tensors, by name.
    importance : path or mapping of str to float, optional
        What a unit of squared error costs in each tensor, under a size.
    effort : str, optional
        By default the profile's, or ``balanced``.

    Raises
    ------
    PlanError
        If any of it cannot be understood, or does not go together.
    """
    asked = (codecs,) if isinstance(codecs, (str, Rule)) else tuple(codecs)
    rules = tuple(rule if isinstance(rule, Rule) else parse_rule(rule) for rule in asked)
    limited = bool(bounds) or (budget is not None and bool(budget.given()))
    if profile is None:
        profile = _USUAL if limited and not rules else "lossless"
    found = profile if isinstance(profile, Profile) else load_profile(profile)
    if not found.candidates and not rules and limited:
        raise PlanError(f"profile {found.name} loses nothing: it takes no budget")
    if effort is not None and effort not in EFFORTS:
        raise ValueError(f"effort is one of {', '.join(EFFORTS)}; got {effort!r}")
    limit = found.budget if budget is None or not budget.given() else budget
    if bounds and limit is not budget and limit.is_size:
        limit = Budget()  # the size that a profile proposes is no wish of who gives bounds
    if importance is not None and not limit.is_size:
        raise PlanError(
            "importance spreads a size over tensors: give bits per weight, ratio or size"
        )
    weights: Mapping[str, float] | None
    if isinstance(importance, (str, os.PathLike)):
        weights = load_importance(Path(importance))
    else:
        weights = None if importance is None else _checked(importance)
    return Planner(
        profile=found,
        budget=limit,
        effort=effort or found.effort or "balanced",
        rules=rules,
        bounds={name: _bound(name, single) for name, single in (bounds or {}).items()},
        importance=weights,
    )


def _bound(name: str, budget: Budget) -> Bound:
    if budget.bound is None:
        raise PlanError(f"tensor {name!r}: its bound is one of rel-L2, SNR and absolute error")
    return budget.bound


def _checked(importance: Mapping[str, float]) -> dict[str, float]:
    wrong = [name for name, value in importance.items() if not 0 < value < math.inf]
    if wrong:
        raise PlanError(f"importance is positive and finite; not so for {listed(wrong)}")
    return dict(importance)


def load_importance(path: Path) -> dict[str, float]:
    """Return the mean of each tensor of a safetensors file.

    Raises
    ------
    PlanError
        If a tensor is no float, or not all its elements are positive and finite.
    CheckpointError
        If the file cannot be read.
    """
    found, wrong = {}, []
    with open_checkpoint(path) as checkpoint:
        for info in checkpoint.tensors:
            dtype = numpy_dtype(info.dtype)
            if dtype is None or not is_float(dtype) or not info.nbytes:
                wrong.append(info.name)
                continue
            values = checkpoint.read(info.name).view(dtype).astype(np.float64)
            if not (np.isfinite(values).all() and values.min() > 0):
                wrong.append(info.name)
                continue
            found[info.name] = float(values.mean())
    if wrong:
        raise PlanError(f"{path}: importance is positive and finite; not so for {listed(wrong)}")
    return found
