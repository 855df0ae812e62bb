"""The sparsity of each tensor raised until an error budget or a size is reached.

Needs no torch, so that stored checkpoints are pruned by it too; a validation loss is the limit in
`validated`, which runs a model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real

import numpy as np

from tensorcomp.errors import PruningError
from tensorcomp.metrics.distortion import measure
from tensorcomp.selection.error_curve import ErrorCurve, most_within
from tensorcomp.selection.granularity import NM, Element, Granularity, parse_granularity
from tensorcomp.selection.groups import Limits, limits_of
from tensorcomp.selection.mask_checks import pruned
from tensorcomp.selection.select import USUAL_FLOOR, Selection, select
from tensorcomp.selection.streaming_scores import StreamingScores

_ROUNDING = 1e-10  # relative; far more than sums of squares in float64 differ by
_EVALUATIONS = 16
_CLOSE = 0.995  # of a size: enough of it is used


def select_within_error(
    scores: StreamingScores,
    max_rel_l2: float,
    *,
    granularity: str | Granularity = Element(),  # noqa: B008 - a frozen value
    floor: float = USUAL_FLOOR,
    ceiling: float = 1.0,
    threads: int | None = None,
) -> Selection:
    """Select as much of each tensor as an error allows.

    In each tensor the lowest weights by (score, flat index) are pruned, as many as keep
    ‖x − x̂‖₂ / ‖x‖₂ within the limit, measured as `compare` measures it: one more would break it.
    By magnitude that is the most of any choice.

    Parameters
    ----------
    scores : StreamingScores
        With the weights that the error is of.
    max_rel_l2 : float
        From 0, where only zeros are pruned, to 1.
    granularity, floor, ceiling, threads : optional
        As for `select`; not `NM`.

    Raises
    ------
    PruningError
        If the limit is no such number, `ceiling` or earlier masks want more pruned than it allows,
        or a tensor holds NaN or infinity.

    Notes
    -----
    Sorts each tensor: 0.1 µs and 8 bytes a weight by magnitude, 0.4 µs and 24 bytes otherwise.
    """
    number = isinstance(max_rel_l2, Real) and not isinstance(max_rel_l2, bool)
    if not number or not 0 <= max_rel_l2 <= 1:
        raise PruningError(f"a rel-L2 to keep is a number from 0 to 1; got {max_rel_l2!r}")
    room = Room.of(scores, granularity, floor, ceiling)
    low, high = {}, {}
    for name in scores.names:
        curve = ErrorCurve.of(scores, name, room.unit)
        most = room.most(name)
        low[name] = min(curve.within(max_rel_l2 * (1 - _ROUNDING)), most)
        high[name] = min(curve.within(max_rel_l2 * (1 + _ROUNDING)), most)
    # The curves add squares up in another order than who measures the result: near the limit,
    # what is measured decides.
    while any(low[name] < high[name] for name in scores.names):
        middle = {name: (low[name] + high[name] + 1) // 2 for name in scores.names}
        selection = room.select(middle, threads)
        for name in scores.names:
            if low[name] == high[name]:
                continue
            if _measured(scores, selection, name) <= max_rel_l2:
                low[name] = middle[name]
            else:
                high[name] = middle[name] - 1
    for name in scores.names:
        if low[name] < room.least(name):
            raise PruningError(
                f"tensor {name!r}: the ceiling of its density, or earlier masks, want more pruned "
                f"than a rel-L2 of {max_rel_l2} allows"
            )
    return room.select(low, threads)


def select_within_size(
    scores: StreamingScores,
    max_bytes: int,
    file_size: Callable[[Selection], int],
    *,
    granularity: str | Granularity = Element(),  # noqa: B008 - a frozen value
    floor: float = USUAL_FLOOR,
    ceiling: float = 1.0,
    threads: int | None = None,
) -> Selection:
    """Select as little of all tensors as makes a file small enough.

    One rel-L2 is common to all tensors: the largest sparsity within it is that of each. It is
    searched for by writing files.

    Parameters
    ----------
    scores : StreamingScores
        With the weights that errors are of.
    max_bytes : int
    file_size : callable
        Returns the bytes of the file that holds the pruned tensors; called some 5 to 20 times.
    granularity, floor, ceiling, threads : optional
        As for `select`; not `NM`.

    Returns
    -------
    Selection
        Of at most `max_bytes`, and of 99.5 % of it or more where the sizes allow it.

    Raises
    ------
    PruningError
        If the size is no positive integer, cannot be reached within the floor, or a tensor holds
        NaN or infinity.
    """
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 1:
        raise PruningError(f"a size to reach is a number of bytes of at least 1; got {max_bytes!r}")
    room = Room.of(scores, granularity, floor, ceiling)
    points = {name: ErrorCurve.of(scores, name, room.unit).points() for name in scores.names}

    def at(rel_l2: float) -> tuple[Selection, int]:
        wanted = {
            name: int(most_within(rel_l2, errors, units))
            for name, (units, errors) in points.items()
        }
        counts = {n: min(max(wanted[n], room.least(n)), room.most(n)) for n in scores.names}
        selection = room.select(counts, threads)
        return selection, file_size(selection)

    least, largest = at(0.0)
    if largest <= max_bytes:
        return least
    best, smallest = at(1.0)
    if smallest > max_bytes:
        raise PruningError(
            f"a size of {max_bytes:,} bytes cannot be reached: pruned as far as the floor {floor} "
            f"allows, the file takes {smallest:,}; lower the floor or raise the size"
        )
    low, high = 0.0, 1.0
    for _ in range(_EVALUATIONS):
        if smallest >= _CLOSE * max_bytes:
            break
        share = (largest - max_bytes) / (largest - smallest)
        middle = low + (high - low) * min(max(share, 0.1), 0.9)
        selection, size = at(middle)
        if size <= max_bytes:
            best, high, smallest = selection, middle, size
        else:
            low, largest = middle, size
    return best


@dataclass(frozen=True)
class Room:
    """How much of each tensor may be pruned, in its units, and how a selection is made of it.

    Parameters
    ----------
    scores : StreamingScores
    unit : Granularity
    floor, ceiling : float
        The least and the greatest density of each tensor.
    limits : mapping of str to Limits
        By tensor.
    weights : mapping of str to int
        How many a unit of each tensor has.
    """

    scores: StreamingScores
    unit: Granularity
    floor: float
    ceiling: float
    limits: Mapping[str, Limits]
    weights: Mapping[str, int]

    @classmethod
    def of(
        cls, scores: StreamingScores, granularity: str | Granularity, floor: float, ceiling: float
    ) -> Room:
        """Return the room that a floor and a ceiling of each tensor's density leave.

        Raises
        ------
        PruningError
            If the granularity is a pattern, or does not suit a tensor.
        """
        unit = parse_granularity(granularity)
        if isinstance(unit, NM):
            raise PruningError(f"{unit} has one sparsity only; there is nothing to adapt")
        if not scores.names:
            raise PruningError("there is no tensor to prune")
        limits, weights = {}, {}
        for name in scores.names:
            limits[name] = limits_of(scores, name, unit, floor, ceiling)
            units = math.prod(unit.units(scores.shapes[name], name))
            weights[name] = scores.sizes[name] // max(units, 1)
        return cls(scores, unit, floor, ceiling, limits, weights)

    def units(self, name: str) -> int:
        """Return how many units a tensor has."""
        return self.scores.sizes[name] // max(self.weights[name], 1)

    def least(self, name: str) -> int:
        """Return how many units of a tensor must be pruned."""
        return -(-self.limits[name].least // max(self.weights[name], 1))

    def most(self, name: str) -> int:
        """Return how many units of a tensor may be pruned."""
        return self.limits[name].most // max(self.weights[name], 1)

    def select(self, units: Mapping[str, int], threads: int | None) -> Selection:
        """Select as many of the lowest units of each tensor."""
        return select(
            self.scores,
            {
                name: units[name] * self.weights[name] / max(self.scores.sizes[name], 1)
                for name in self.scores.names
            },
            scope="tensor",
            granularity=self.unit,
            floor=self.floor,
            ceiling=self.ceiling,
            threads=threads,
        )


def _measured(scores: StreamingScores, selection: Selection, name: str) -> float:
    weights = np.ascontiguousarray(scores.weights[name])
    return measure(weights, pruned(weights, selection.mask(name))).rel_l2
