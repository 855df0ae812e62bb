"""How much harm pruning does to a tensor, by how much of it is pruned."""

from __future__ import annotations

import math

import numpy as np

from tensorcomp.errors import PruningError
from tensorcomp.selection.granularity import Element, Granularity
from tensorcomp.selection.groups import unit_scores
from tensorcomp.selection.scores import Magnitude
from tensorcomp.selection.scores.base import widened
from tensorcomp.selection.streaming_scores import StreamingScores

_BLOCK = 1 << 14  # units whose squares are added up at a time
_POINTS = 2048


class ErrorCurve:
    """The rel-L2 of a tensor by how many of its units are pruned, the lowest first.

    Parameters
    ----------
    values : numpy.ndarray
        Of each unit, in the order in which they go: its weight, or, `squared`, the sum of the
        squares of its weights.
    weights : int
        Of each unit.
    squared : bool
        What the values are.
    """

    def __init__(self, values: np.ndarray, *, weights: int = 1, squared: bool = False) -> None:
        self._values = values
        self._squared = squared
        self.weights = weights
        starts = range(0, values.size, _BLOCK)
        sums = [self._squares(start, start + _BLOCK).sum() for start in starts]
        self._sums = np.concatenate([[0.0], np.cumsum(sums)])

    @classmethod
    def of(cls, scores: StreamingScores, name: str, unit: Granularity) -> ErrorCurve:
        """Return the curve of a tensor: units in the order of their score, then of their index.

        Raises
        ------
        PruningError
            If the squares of its weights have no finite sum.
        """
        whole = scores[name]
        flat = widened(scores.weights[name]).reshape(-1)
        if (
            isinstance(unit, Element)
            and type(scores) is StreamingScores
            and scores.score == Magnitude()
        ):
            curve = cls(np.sort(whole.reshape(-1)))  # much faster than what follows
        elif isinstance(unit, Element):
            curve = cls(flat[np.argsort(whole.reshape(-1), kind="stable")])
        else:
            sums = unit_scores(scores, name, unit)
            squares = unit.sums(np.square(flat, dtype=np.float64).reshape(whole.shape))
            values = squares.reshape(-1)[np.argsort(sums, kind="stable")]
            curve = cls(values, weights=whole.size // max(sums.size, 1), squared=True)
        if not math.isfinite(curve._sums[-1]):
            raise PruningError(
                f"tensor {name!r} holds NaN, infinity or weights too large for an error; leave it "
                "out by 'where'"
            )
        return curve

    @property
    def units(self) -> int:
        """How many there are."""
        return int(self._values.size)

    def error(self, units: int) -> float:
        """Return the rel-L2 where that many units are pruned; computed in float64."""
        total = self._sums[-1]
        return math.sqrt(self._sum(units)) / math.sqrt(total) if total else 0.0

    def within(self, max_rel_l2: float) -> int:
        """Return the largest number of units whose rel-L2 is at most that."""
        low, high = 0, self.units
        while low < high:
            middle = (low + high + 1) // 2
            if self.error(middle) <= max_rel_l2:
                low = middle
            else:
                high = middle - 1
        return low

    def points(self) -> tuple[np.ndarray, np.ndarray]:
        """Return some numbers of units, rising from 0 to all, and their errors, never falling."""
        units = np.unique(np.linspace(0, self.units, _POINTS).astype(np.int64))
        errors = np.array([self.error(int(count)) for count in units])
        return units, np.maximum.accumulate(errors)

    def _sum(self, units: int) -> float:
        block = units // _BLOCK
        return float(self._sums[block] + self._squares(block * _BLOCK, units).sum())

    def _squares(self, start: int, stop: int) -> np.ndarray:
        values = self._values[start:stop].astype(np.float64)
        return values if self._squared else np.square(values)


def most_within(tolerance: float, harms: np.ndarray, amounts: np.ndarray) -> float:
    """Return the most that may be pruned at a tolerance; between measured points, in proportion.

    Parameters
    ----------
    tolerance : float
        At least 0.
    harms : numpy.ndarray
        Never falling, the first one 0.
    amounts : numpy.ndarray
        What is pruned at those harms, rising.
    """
    last = int(np.searchsorted(harms, tolerance, side="right")) - 1
    if last + 1 == len(harms) or not math.isfinite(harms[last + 1]):
        return float(amounts[last])
    share = (tolerance - harms[last]) / (harms[last + 1] - harms[last])
    return float(amounts[last] + share * (amounts[last + 1] - amounts[last]))
