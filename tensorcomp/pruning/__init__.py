"""WHICH weights matter: score → select → hold and store.

Scores and selection need NumPy alone, so that stored checkpoints are pruned without torch; what
runs a model needs torch, and is imported when it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorcomp.pruning.calibration import GradientHistory, calibrate
    from tensorcomp.pruning.granularity import (
        NM,
        Block,
        Channel,
        Element,
        Filter,
        Row,
        parse_granularity,
    )
    from tensorcomp.pruning.holding import hold
    from tensorcomp.pruning.prune import prune
    from tensorcomp.pruning.result import PruningResult
    from tensorcomp.pruning.schedules import cubic, exponential, one_shot
    from tensorcomp.pruning.scored import Scores
    from tensorcomp.pruning.scores import parse_score
    from tensorcomp.pruning.selection import Selection, select
    from tensorcomp.pruning.statistics import Statistics
    from tensorcomp.pruning.weights import ModelWeights, SourceWeights

_HOMES = {
    "NM": "granularity",
    "Block": "granularity",
    "Channel": "granularity",
    "Element": "granularity",
    "Filter": "granularity",
    "GradientHistory": "calibration",
    "ModelWeights": "weights",
    "PruningResult": "result",
    "Row": "granularity",
    "Scores": "scored",
    "Selection": "selection",
    "SourceWeights": "weights",
    "Statistics": "statistics",
    "calibrate": "calibration",
    "cubic": "schedules",
    "exponential": "schedules",
    "hold": "holding",
    "one_shot": "schedules",
    "parse_granularity": "granularity",
    "parse_score": "scores",
    "prune": "prune",
    "select": "selection",
}

__all__ = [
    "NM",
    "Block",
    "Channel",
    "Element",
    "Filter",
    "GradientHistory",
    "ModelWeights",
    "PruningResult",
    "Row",
    "Scores",
    "Selection",
    "SourceWeights",
    "Statistics",
    "calibrate",
    "cubic",
    "exponential",
    "hold",
    "one_shot",
    "parse_granularity",
    "parse_score",
    "prune",
    "select",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'tensorcomp.pruning' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"tensorcomp.pruning.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
