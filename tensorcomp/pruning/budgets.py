"""Prune models and tensors in memory to an error or a file size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tensorcomp.api.save import save
from tensorcomp.checkpoints.in_memory import MemoryCheckpoint
from tensorcomp.planning.statistics import Statistics
from tensorcomp.pruning.result import PruningResult
from tensorcomp.pruning.weights import ModelWeights
from tensorcomp.selection.adaptive import AdaptiveSelection
from tensorcomp.selection.checks import pruned
from tensorcomp.selection.granularity import Granularity
from tensorcomp.selection.scores import parse_score
from tensorcomp.selection.scores.base import Score
from tensorcomp.selection.select import USUAL_FLOOR, Selection
from tensorcomp.selection.stored.tensors import choose, masks_of, unique_weights
from tensorcomp.selection.streaming_scores import StreamingScores

if TYPE_CHECKING:
    import torch

Tensors: TypeAlias = "Mapping[str, np.ndarray | torch.Tensor] | torch.nn.Module"


def prune_to_error(
    tensors: Tensors,
    max_rel_l2: float,
    *,
    score: str | Score = "magnitude",
    statistics: Statistics | None = None,
    where: Any = None,
    granularity: str | Granularity = "element",
    floor: float = USUAL_FLOOR,
    threads: int | None = None,
) -> PruningResult:
    """Prune as much of each tensor as keeps its error within a limit.

    Parameters
    ----------
    tensors : torch.nn.Module or mapping of str to numpy.ndarray or torch.Tensor
        Not changed.
    max_rel_l2 : float
        What ‖x − x̂‖₂ / ‖x‖₂ of each tensor may be, from 0 to 1.
    score, statistics : optional
        What goes first; see `prune`.
    where : optional
        Of a model, which parameters, as for `prune`; of a mapping, which tensors: roles, names or
        patterns of names, by default matrices and kernels of layers.
    granularity, floor, threads : optional
        As for `select`.

    Returns
    -------
    PruningResult
        With as much in each tensor as the limit and the floor allow.

    Raises
    ------
    PruningError
        If nothing is selected, or a tensor holds NaN or infinity.

    Examples
    --------
    >>> result = prune_to_error({"linear.weight": np.array([[1.0, -1, 1, 5, 6, 6]])}, 0.1)
    >>> result.pruned
    {'linear.weight': 1}
    """
    found = _Found.among(tensors, where)
    scores = StreamingScores(found.weights, parse_score(score), statistics, masked=found.masked)
    adaptive = AdaptiveSelection(scores, granularity, floor, threads=threads)
    return found.result(adaptive.within_error(max_rel_l2), scores.score)


def prune_to_size(
    tensors: Tensors,
    max_bytes: int,
    *,
    score: str | Score = "magnitude",
    statistics: Statistics | None = None,
    where: Any = None,
    granularity: str | Granularity = "element",
    floor: float = USUAL_FLOOR,
    effort: str | None = None,
    threads: int | None = None,
) -> PruningResult:
    """Prune as little as makes the file of all tensors small enough.

    Parameters
    ----------
    tensors, score, statistics, where, granularity, floor, threads
        As for `prune_to_error`. What is not pruned counts too: all tensors of the mapping, the
        whole state dict of a model.
    max_bytes : int
        What `save_file` may write for them, losslessly, with the same effort.
    effort : {"balanced", "fast", "max"}, optional

    Returns
    -------
    PruningResult
        All tensors lose as much as one common rel-L2 takes from each.

    Raises
    ------
    PruningError
        If nothing is selected, the size cannot be reached, or a tensor holds NaN or infinity.
    """
    found = _Found.among(tensors, where)
    scores = StreamingScores(found.weights, parse_score(score), statistics, masked=found.masked)
    adaptive = AdaptiveSelection(scores, granularity, floor, threads=threads)

    def file_size(selection: Selection) -> int:
        return len(save(found.pruned(selection), effort=effort, threads=threads))

    return found.result(adaptive.within_size(max_bytes, file_size), scores.score)


@dataclass(frozen=True)
class _Found:
    """The tensors to prune, equal ones once, and which of them each name has."""

    tensors: Mapping[str, Any]
    weights: Mapping[str, np.ndarray]
    keys: Mapping[str, str]
    reported: Sequence[str]
    masked: Mapping[str, Callable[[], np.ndarray]] = field(default_factory=dict)

    @classmethod
    def among(cls, tensors: Tensors, where: Any) -> _Found:
        if isinstance(tensors, Mapping):
            selectors = (where,) if isinstance(where, str) else where
            chosen = choose(
                [MemoryCheckpoint(tensors)], [{name: name for name in tensors}], selectors
            )
            masked = masks_of(chosen)
            weights, keys = unique_weights(chosen, masked)
            return cls(tensors, weights, keys, sorted(keys), masked)
        from tensorcomp.calibration.targets import prunable_parameters, unwrapped

        inner = unwrapped(tensors)
        parameters = prunable_parameters(inner, where)
        names = {id(parameter): name for name, parameter in parameters.items()}
        every = inner.named_parameters(remove_duplicate=False)
        keys = {name: names[id(weight)] for name, weight in every if id(weight) in names}
        return cls(inner.state_dict(), ModelWeights(parameters), keys, list(parameters))

    def pruned(self, selection: Selection) -> dict[str, Any]:
        """Return all tensors, pruned."""
        left = {name: pruned(self.weights[name], selection.mask(name)) for name in selection.names}
        return {
            name: left[self.keys[name]] if name in self.keys else tensor
            for name, tensor in self.tensors.items()
        }

    def result(self, selection: Selection, score: Score) -> PruningResult:
        """Return the masks: one per tied weight, one per tensor of a mapping."""
        result = PruningResult.of(selection, str(score))
        found = {name: result.masks.get(self.keys[name]) for name in self.reported}
        masks = {name: mask for name, mask in found.items() if mask is not None}
        return replace(result, masks=masks)
