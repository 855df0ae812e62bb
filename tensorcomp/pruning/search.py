"""Raise the sparsity of each tensor until a validation loss is reached."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real

import numpy as np
import torch
from torch import nn

from tensorcomp.calibration.masking import mask_parameters
from tensorcomp.calibration.preserve_state import preserve_state
from tensorcomp.calibration.targets import Where, prunable_parameters, unwrapped
from tensorcomp.errors import PruningError
from tensorcomp.planning.statistics import Statistics
from tensorcomp.pruning.result import PruningResult
from tensorcomp.pruning.weights import ModelWeights
from tensorcomp.selection.adaptive import AdaptiveSelection, narrow
from tensorcomp.selection.checks import require_count
from tensorcomp.selection.error_curve import most_within
from tensorcomp.selection.granularity import Granularity
from tensorcomp.selection.schedules import check_schedule
from tensorcomp.selection.scores import parse_score
from tensorcomp.selection.scores.base import Score
from tensorcomp.selection.select import USUAL_FLOOR
from tensorcomp.selection.streaming_scores import StreamingScores

DEFAULT_GRID = (0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98, 0.99)
SENSITIVITIES = ("loss", "rel_l2")


def prune_to_loss(
    model: nn.Module,
    evaluate: Callable[[nn.Module], float],
    max_loss: float,
    *,
    score: str | Score = "magnitude",
    statistics: Statistics | None = None,
    where: Where = None,
    granularity: str | Granularity = "element",
    floor: float = USUAL_FLOOR,
    sensitivity: str = "loss",
    grid: Sequence[float] = DEFAULT_GRID,
    evaluations: int = 20,
    threads: int | None = None,
) -> PruningResult:
    """Prune as much of a model as a validation loss allows.

    First each tensor is pruned alone, to each sparsity of a grid, and its sensitivity measured: how
    far the loss rises. Then one tolerance is common to all tensors: each gets the sparsity at which
    its loss rises by just that, in proportion between the points of the grid. The largest tolerance
    at which the model, pruned as a whole, keeps the limit is searched for by bisection.

    Parameters
    ----------
    model : torch.nn.Module
        Left as it was.
    evaluate : callable
        Takes the model and returns its loss, lower being better. Each call finds the same buffers,
        training flags and generators of random numbers. Called once for each tensor and sparsity of
        the grid, and up to `evaluations` + 3 times more.
    max_loss : float
        What the pruned model's loss is at most.
    score, statistics, where, granularity, floor, threads : optional
        As for `prune`; the granularity is not `NM`.
    sensitivity : {"loss", "rel_l2"}
        What is tolerated: a rise of the loss, or, without the calls of `evaluate` for each tensor,
        an error of the tensor, ‖x − x̂‖₂ / ‖x‖₂.
    grid : sequence of float
        Increasing sparsities; what the floor allows at most is added.
    evaluations : int
        Of the search for the tolerance.

    Returns
    -------
    PruningResult
        Of a model whose loss was evaluated, and is at most `max_loss`.

    Raises
    ------
    PruningError
        If the unpruned model's loss is above the limit or no number, an argument is not as above,
        or a tensor holds NaN or infinity.

    References
    ----------
    Sensitivity scans: Han, Pool, Tran & Dally 2015, "Learning both weights and connections for
    efficient neural networks"; Li et al. 2017, "Pruning filters for efficient ConvNets".
    """
    if sensitivity not in SENSITIVITIES:
        known = ", ".join(SENSITIVITIES)
        raise PruningError(f"expected sensitivity to be one of {known}, got {sensitivity!r}")
    require_count("evaluations", evaluations)
    if isinstance(max_loss, bool) or not isinstance(max_loss, Real):
        raise PruningError(f"expected max_loss to be a number, got {max_loss!r}")
    parsed = parse_score(score)
    weights = dict(ModelWeights(prunable_parameters(model, where)))
    scores = StreamingScores(weights, parsed, statistics)
    adaptive = AdaptiveSelection(scores, granularity, floor, threads=threads)

    def result(counts: Mapping[str, int]) -> PruningResult:
        return PruningResult.of(adaptive.select(counts), str(parsed))

    def loss(counts: Mapping[str, int]) -> float:
        return _masked_loss(model, evaluate, result(counts).masks)

    before = _masked_loss(model, evaluate, {})
    if before == math.inf:
        raise PruningError("the unpruned model's loss is NaN or infinite: no limit can be kept")
    if not before <= max_loss:
        raise PruningError(
            f"the unpruned model's loss is {before:.6g}, not at most {max_loss:.6g}; "
            "raise the limit"
        )
    curves = {}
    for name, most in adaptive.most.items():
        if sensitivity == "loss":
            total = adaptive.units(name)
            points = {min(round(part * total), most) for part in check_schedule(grid)}
            amounts = np.array(sorted(points | {0, most}))
            rises = [loss({name: int(count)}) - before for count in amounts[1:]]
            curves[name] = np.maximum.accumulate([0.0, *rises]), amounts
        else:
            amounts, errors = adaptive.curve(name).points()
            few = amounts <= most
            curves[name] = errors[few], amounts[few]
    measured = np.unique(np.concatenate([rises for rises, _ in curves.values()]))
    levels = measured[np.isfinite(measured)]

    def at(place: float) -> dict[str, int]:
        """Return the units at a level; from -1 to 0, a part of those at 0."""
        tolerance = float(np.interp(place, np.arange(levels.size), levels))
        part = min(1 + place, 1.0)
        return {name: int(part * most_within(tolerance, *curves[name])) for name in curves}

    def fits(place: float) -> bool:
        return loss(at(place)) <= max_loss

    def middle(good: float, bad: float) -> float | None:
        between = (good + bad) / 2
        return None if at(between) in (at(good), at(bad)) else between

    best = levels.size - 1.0
    if not fits(best):
        best = narrow(fits, -1.0, best, middle, evaluations)
    return result(at(best))


def _masked_loss(
    model: nn.Module,
    evaluate: Callable[[nn.Module], float],
    masks: Mapping[str, np.ndarray],
) -> float:
    """Evaluate a model under masks, and restore it; NaN counts as infinite."""
    with preserve_state(model):
        mask_parameters(unwrapped(model), masks)
        value = evaluate(model)
    try:
        number = float(value.detach() if isinstance(value, torch.Tensor) else value)
    except (TypeError, ValueError) as error:
        raise PruningError(
            f"evaluate must return the loss as a number; got a {type(value).__name__}"
        ) from error
    return math.inf if math.isnan(number) else number
