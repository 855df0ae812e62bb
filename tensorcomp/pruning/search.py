"""The sparsity of each tensor raised until a validation loss is reached."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TypeAlias

import numpy as np
import torch
from torch import nn

from tensorcomp.errors import PruningError
from tensorcomp.planning.statistics import Statistics
from tensorcomp.pruning.masking import mask_parameters
from tensorcomp.pruning.preserve_state import preserve_state
from tensorcomp.pruning.result import PruningResult
from tensorcomp.pruning.targets import Where, prunable_parameters, unwrapped
from tensorcomp.pruning.weights import ModelWeights
from tensorcomp.selection.adaptive import Room
from tensorcomp.selection.error_curve import ErrorCurve, most_within
from tensorcomp.selection.granularity import Element, Granularity, parse_granularity
from tensorcomp.selection.schedules import check_schedule
from tensorcomp.selection.scores import Score, parse_score
from tensorcomp.selection.select import USUAL_FLOOR
from tensorcomp.selection.streaming_scores import StreamingScores

GRID = (0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98, 0.99)
HARMS = ("loss", "rel_l2")


def prune_to_loss(
    model: nn.Module,
    evaluate: Callable[[nn.Module], float],
    max_loss: float,
    *,
    score: str | Score = "magnitude",
    statistics: Statistics | None = None,
    where: Where = None,
    granularity: str | Granularity = Element(),  # noqa: B008 - a frozen value
    floor: float = USUAL_FLOOR,
    harm: str = "loss",
    grid: Sequence[float] = GRID,
    evaluations: int = 20,
    threads: int | None = None,
) -> PruningResult:
    """Prune as much of a model as a validation loss allows, more where it hurts less.

    First each tensor is pruned alone, to each sparsity of a grid, and its harm measured: how far
    the loss rises. Then one tolerance is common to all tensors: each gets the sparsity at which
    its harm is just that, in proportion between the points of the grid. The largest tolerance at
    which the model, pruned as a whole, keeps the limit is searched for by halving.

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
    harm : {"loss", "rel_l2"}
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
    if harm not in HARMS:
        raise PruningError(f"harm is one of {', '.join(HARMS)}; got {harm!r}")
    if isinstance(evaluations, bool) or not isinstance(evaluations, int) or evaluations < 1:
        raise PruningError(f"evaluations is an integer of at least 1; got {evaluations!r}")
    if isinstance(max_loss, bool) or not isinstance(max_loss, Real):
        raise PruningError(f"the largest loss to accept is a number; got {max_loss!r}")
    parsed, unit = parse_score(score), parse_granularity(granularity)
    with preserve_state(model):
        weights = ModelWeights(prunable_parameters(model, where))
        rooms = {}
        for name in weights:
            scores = StreamingScores({name: weights[name]}, parsed, statistics)
            rooms[name] = Room.of(scores, unit, floor, 1.0)
        trial = _Trial(model, evaluate, rooms, threads)
        before = trial.loss({})
        if before == math.inf:
            raise PruningError("the unpruned model's loss is NaN or infinite: no limit can be kept")
        if not before <= max_loss:
            raise PruningError(
                f"the unpruned model's loss is {before:.6g}, not at most {max_loss:.6g}; "
                "raise the limit"
            )
        if harm == "loss":
            curves = trial.scan(check_schedule(grid), before)
        else:
            curves = {name: _error_curve(room, name) for name, room in rooms.items()}
        units = _search(trial, curves, max_loss, evaluations)
        return PruningResult(trial.masks(units), str(parsed), unit)


# For each tensor, harms, which never fall, and the units that are pruned at them.
_Curves: TypeAlias = "Mapping[str, tuple[np.ndarray, np.ndarray]]"


def _error_curve(room: Room, name: str) -> tuple[np.ndarray, np.ndarray]:
    units, errors = ErrorCurve.of(room.scores, name, room.unit).points()
    few = units <= room.most(name)
    return errors[few], units[few]


@dataclass(frozen=True)
class _Trial:
    """A model that is pruned, evaluated, and put back.

    Parameters
    ----------
    rooms : mapping of str to Room
        For each tensor that may be pruned.
    """

    model: nn.Module
    evaluate: Callable[[nn.Module], float]
    rooms: Mapping[str, Room]
    threads: int | None

    def masks(self, units: Mapping[str, int]) -> dict[str, np.ndarray]:
        """Return masks of the tensors without their lowest units."""
        return {
            name: self.rooms[name].select({name: count}, self.threads).mask(name)
            for name, count in units.items()
        }

    def loss(self, units: Mapping[str, int]) -> float:
        """Return the loss of the model where that many units are pruned; NaN counts as infinite."""
        inner = unwrapped(self.model)
        masks = self.masks(units)
        with preserve_state(self.model, weights=False):
            kept = {name: inner.get_parameter(name).detach().clone() for name in masks}
            try:
                mask_parameters(inner, masks)
                value = self.evaluate(self.model)
            finally:
                for name, weights in kept.items():
                    inner.get_parameter(name).data.copy_(weights)
        try:
            number = float(value.detach() if isinstance(value, torch.Tensor) else value)
        except (TypeError, ValueError) as error:
            raise PruningError(
                f"evaluate must return the loss as a number; got a {type(value).__name__}"
            ) from error
        return math.inf if math.isnan(number) else number

    def scan(self, grid: Sequence[float], before: float) -> _Curves:
        """Return how far the loss rises where each tensor alone is pruned."""
        curves = {}
        for name, room in self.rooms.items():
            most = room.most(name)
            amounts = {min(round(part * room.units(name)), most) for part in grid} | {0, most}
            units = np.array(sorted(amounts))
            rises = [self.loss({name: int(count)}) - before for count in units[1:]]
            curves[name] = (np.maximum.accumulate([0.0, *rises]), units)
        return curves


def _search(trial: _Trial, curves: _Curves, max_loss: float, evaluations: int) -> dict[str, int]:
    """Return the units of each tensor at the largest common tolerance that keeps the limit."""
    measured = np.unique(np.concatenate([harms for harms, _ in curves.values()]))
    levels = measured[np.isfinite(measured)]

    def at(place: float) -> dict[str, int]:
        """Return the units at a place among the levels; from -1 to 0, a part of those at 0."""
        tolerance = float(np.interp(place, np.arange(levels.size), levels))
        part = min(1 + place, 1.0)
        return {name: int(part * most_within(tolerance, *curves[name])) for name in curves}

    low, high = -1.0, levels.size - 1.0
    if trial.loss(at(high)) <= max_loss:
        return at(high)
    for _ in range(evaluations):
        middle = (low + high) / 2
        if at(middle) in (at(low), at(high)):
            break
        if trial.loss(at(middle)) <= max_loss:
            low = middle
        else:
            high = middle
    return at(low)
