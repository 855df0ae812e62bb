"""WHICH weights matter: score → select → hold and store.

Scores and selection need NumPy alone, so that stored checkpoints are pruned without torch; what
runs a model needs torch, and is imported when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorcomp.lazy import lazy_names

if TYPE_CHECKING:
    from tensorcomp.pruning.adapted import prune_to_error, prune_to_size
    from tensorcomp.pruning.calibration import GradientHistory, calibrate
    from tensorcomp.pruning.connectivity import effective_masks
    from tensorcomp.pruning.granularity import (
        NM,
        Block,
        Channel,
        Element,
        Filter,
        Row,
        parse_granularity,
    )
    from tensorcomp.pruning.holding import Hold, hold, release
    from tensorcomp.pruning.lottery import Round, Ticket, find_ticket, train_reinitialised
    from tensorcomp.pruning.prune_model import prune
    from tensorcomp.pruning.request import Pruning
    from tensorcomp.pruning.result import PruningResult
    from tensorcomp.pruning.schedules import cubic, exponential, one_shot
    from tensorcomp.pruning.scored import Scores
    from tensorcomp.pruning.scores import parse_score
    from tensorcomp.pruning.selection import Selection, select
    from tensorcomp.pruning.sparsity import sparsity_report
    from tensorcomp.pruning.statistics import Statistics
    from tensorcomp.pruning.storage import storage_bytes
    from tensorcomp.pruning.validated import prune_to_loss
    from tensorcomp.pruning.weights import ModelWeights

_HOMES = {
    "NM": "granularity",
    "Block": "granularity",
    "Channel": "granularity",
    "Element": "granularity",
    "Filter": "granularity",
    "GradientHistory": "calibration",
    "Hold": "holding",
    "ModelWeights": "weights",
    "Pruning": "request",
    "PruningResult": "result",
    "Round": "lottery",
    "Row": "granularity",
    "Scores": "scored",
    "Selection": "selection",
    "Statistics": "statistics",
    "Ticket": "lottery",
    "calibrate": "calibration",
    "cubic": "schedules",
    "effective_masks": "connectivity",
    "exponential": "schedules",
    "find_ticket": "lottery",
    "hold": "holding",
    "one_shot": "schedules",
    "parse_granularity": "granularity",
    "parse_score": "scores",
    "prune": "prune_model",
    "prune_to_error": "adapted",
    "prune_to_loss": "validated",
    "prune_to_size": "adapted",
    "release": "holding",
    "select": "selection",
    "sparsity_report": "sparsity",
    "storage_bytes": "storage",
    "train_reinitialised": "lottery",
}

__all__ = [
    "NM",
    "Block",
    "Channel",
    "Element",
    "Filter",
    "GradientHistory",
    "Hold",
    "ModelWeights",
    "Pruning",
    "PruningResult",
    "Round",
    "Row",
    "Scores",
    "Selection",
    "Statistics",
    "Ticket",
    "calibrate",
    "cubic",
    "effective_masks",
    "exponential",
    "find_ticket",
    "hold",
    "one_shot",
    "parse_granularity",
    "parse_score",
    "prune",
    "prune_to_error",
    "prune_to_loss",
    "prune_to_size",
    "release",
    "select",
    "sparsity_report",
    "storage_bytes",
    "train_reinitialised",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
