"""Select the weights of stored checkpoints to prune."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tensorcomp.checkpoints.base import Checkpoint
from tensorcomp.errors import PruningError
from tensorcomp.planning.calibrated import calibrated_tensors
from tensorcomp.planning.moments import Moment
from tensorcomp.planning.statistics import Statistics
from tensorcomp.selection.adaptive import AdaptiveSelection
from tensorcomp.selection.request import Pruning
from tensorcomp.selection.scores import parse_score
from tensorcomp.selection.scores.base import Score
from tensorcomp.selection.scores.measured import OptimalBrainDamage
from tensorcomp.selection.select import Selection, select
from tensorcomp.selection.stored.adam import second_moments
from tensorcomp.selection.stored.pruned_checkpoint import PrunedCheckpoint
from tensorcomp.selection.stored.tensors import Chosen, choose, masks_of, unique_weights
from tensorcomp.selection.streaming_scores import StreamingScores


def pruned_sources(
    sources: Sequence[Checkpoint],
    pruning: Pruning,
    keys: Sequence[Mapping[str, str]] | None = None,
    *,
    file_size: Callable[[list[PrunedCheckpoint]], int] | None = None,
    threads: int | None = None,
) -> list[PrunedCheckpoint]:
    """Select the weights of one model, and return its sources pruned.

    Parameters
    ----------
    sources : sequence of Checkpoint
        All files of the model; they must stay open.
    pruning : Pruning
    keys : sequence of mapping of str to str, optional
        For each source, names of its tensors that no other's has; by default their own.
    file_size : callable, optional
        Returns the bytes of all compressed files together; for a target size.
    threads : int, optional
        All available processors by default. The selection does not depend on it.

    Raises
    ------
    PruningError
        If nothing is selected, a statistic is missing or of another shape, a score is NaN, or the
        target cannot be reached.
    """
    if keys is None:
        keys = [{info.name: info.name for info in source.tensors} for source in sources]
    chosen = choose(sources, keys, pruning.selectors)
    score = parse_score(pruning.score)
    given = None if pruning.stats is None else Statistics.load(pruning.stats)
    repairs = _repairs(chosen, given) if pruning.repair and given is not None else {}
    chosen, score, statistics = _with_statistics(sources, chosen, score, pruning, given)
    masked = masks_of(chosen)
    apart: Collection[str] = ()  # tensors with a sparsity, a statistic or a mask of their own
    if isinstance(pruning.sparsity, Mapping):
        apart = pruning.sparsity
    elif score.statistic is not None and statistics is not None:
        apart = statistics.arrays.get(score.statistic, ())
    weights, first = unique_weights(chosen, {*apart, *masked})
    scores = StreamingScores(weights, score, statistics, masked=masked)
    own = [
        {item.info.name: first[item.key] for item in chosen if item.source is source}
        for source in sources
    ]

    def pruned(selection: Selection) -> list[PrunedCheckpoint]:
        return [
            PrunedCheckpoint(source, selection, str(score), names, repairs.get(id(source), {}))
            for source, names in zip(sources, own, strict=True)
        ]

    limits: dict[str, Any] = {"granularity": pruning.granularity, "floor": pruning.floor}
    limits |= {"ceiling": pruning.ceiling, "threads": threads}
    if pruning.max_rel_l2 is None and pruning.target_size is None:
        return pruned(select(scores, pruning.sparsity, scope=pruning.scope, **limits))
    if pruning.scope not in (None, "tensor"):
        raise PruningError(
            "an error or a size gives each tensor a sparsity of its own: expected the scope "
            f"tensor, got {pruning.scope}"
        )
    adaptive = AdaptiveSelection(scores, **limits)
    if pruning.max_rel_l2 is not None:
        return pruned(adaptive.within_error(pruning.max_rel_l2))
    if file_size is None or pruning.target_size is None:
        raise PruningError("a target size needs files to be written; give a sparsity here")
    return pruned(
        adaptive.within_size(pruning.target_size, lambda selection: file_size(pruned(selection)))
    )


def _repairs(chosen: Sequence[Chosen], statistics: Statistics) -> dict[int, dict[str, Moment]]:
    """Return by what the tensors of each source are repaired, of those that were measured."""
    shapes = {name: item.info.shape for item in chosen for name in item.names}
    known = calibrated_tensors(statistics, shapes)
    found: dict[int, dict[str, Moment]] = {}
    for item in chosen:
        own = next((known[name] for name in item.names if name in known), None)
        if own is not None:
            own.check(item.read())
            found.setdefault(id(item.source), {})[item.info.name] = own.moment
    return found


def _with_statistics(
    sources: Sequence[Checkpoint],
    chosen: list[Chosen],
    score: Score,
    pruning: Pruning,
    given: Statistics | None,
) -> tuple[list[Chosen], Score, Statistics | None]:
    """Return what a score needs beside the weights, by the tensors' keys."""
    if score.statistic is None and given is not None and not pruning.repair:
        raise PruningError(f"the score {score} needs no statistics; leave out stats=…")
    if score.statistic is None:
        return chosen, score, None
    if given is None and not isinstance(score, OptimalBrainDamage):
        raise PruningError(
            f"the score {score} needs the statistic {score.statistic!r}: give stats=…, a file of "
            "tensorcomp calibrate"
        )
    if given is None:
        every = pruning.selectors is not None
        damage, moments = second_moments(sources, chosen, all_of_them=every)
        return chosen, damage, moments
    names = {item.key: item.names for item in chosen}
    return chosen, score, given.matched(score.statistic, names)
