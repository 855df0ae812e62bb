"""WHICH weights matter: score → select → hold and store.

Scores and selection need NumPy alone, so that stored checkpoints are pruned without torch; what
runs a model needs torch, and is imported when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorcomp._lazy import lazy_names

if TYPE_CHECKING:
    from tensorcomp.planning.statistics import Statistics
    from tensorcomp.pruning.adapted import prune_to_error, prune_to_size
    from tensorcomp.pruning.calibration import GradientHistory, calibrate
    from tensorcomp.pruning.lottery_ticket.lottery import (
        Round,
        Ticket,
        find_ticket,
        train_reinitialised,
    )
    from tensorcomp.pruning.mask_hooks import MaskHooks, hold, release
    from tensorcomp.pruning.prune import prune
    from tensorcomp.pruning.result import PruningResult
    from tensorcomp.pruning.search import prune_to_loss
    from tensorcomp.pruning.weights import ModelWeights
    from tensorcomp.selection.granularity import (
        NM,
        Block,
        Channel,
        Element,
        Filter,
        Row,
        parse_granularity,
    )
    from tensorcomp.selection.request import Pruning
    from tensorcomp.selection.schedules import cubic, exponential, one_shot
    from tensorcomp.selection.scores import parse_score
    from tensorcomp.selection.select import Selection, select
    from tensorcomp.selection.streaming_scores import StreamingScores
    from tensorcomp.sparsity.measure import sparsity_report
    from tensorcomp.sparsity.storage import storage_bytes

_HOMES = {
    "NM": "tensorcomp.selection.granularity",
    "Block": "tensorcomp.selection.granularity",
    "Channel": "tensorcomp.selection.granularity",
    "Element": "tensorcomp.selection.granularity",
    "Filter": "tensorcomp.selection.granularity",
    "GradientHistory": "tensorcomp.pruning.calibration",
    "MaskHooks": "tensorcomp.pruning.mask_hooks",
    "ModelWeights": "tensorcomp.pruning.weights",
    "Pruning": "tensorcomp.selection.request",
    "PruningResult": "tensorcomp.pruning.result",
    "Round": "tensorcomp.pruning.lottery_ticket.lottery",
    "Row": "tensorcomp.selection.granularity",
    "StreamingScores": "tensorcomp.selection.streaming_scores",
    "Selection": "tensorcomp.selection.select",
    "Statistics": "tensorcomp.planning.statistics",
    "Ticket": "tensorcomp.pruning.lottery_ticket.lottery",
    "calibrate": "tensorcomp.pruning.calibration",
    "cubic": "tensorcomp.selection.schedules",
    "exponential": "tensorcomp.selection.schedules",
    "find_ticket": "tensorcomp.pruning.lottery_ticket.lottery",
    "hold": "tensorcomp.pruning.mask_hooks",
    "one_shot": "tensorcomp.selection.schedules",
    "parse_granularity": "tensorcomp.selection.granularity",
    "parse_score": "tensorcomp.selection.scores",
    "prune": "tensorcomp.pruning.prune",
    "prune_to_error": "tensorcomp.pruning.adapted",
    "prune_to_loss": "tensorcomp.pruning.search",
    "prune_to_size": "tensorcomp.pruning.adapted",
    "release": "tensorcomp.pruning.mask_hooks",
    "select": "tensorcomp.selection.select",
    "sparsity_report": "tensorcomp.sparsity.measure",
    "storage_bytes": "tensorcomp.sparsity.storage",
    "train_reinitialised": "tensorcomp.pruning.lottery_ticket.lottery",
}

__all__ = [
    "NM",
    "Block",
    "Channel",
    "Element",
    "Filter",
    "GradientHistory",
    "MaskHooks",
    "ModelWeights",
    "Pruning",
    "PruningResult",
    "Round",
    "Row",
    "Selection",
    "Statistics",
    "StreamingScores",
    "Ticket",
    "calibrate",
    "cubic",
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
