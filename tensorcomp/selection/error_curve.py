"""Compute the error of a tensor by how much of it is pruned."""

from __future__ import annotations

import math
from bisect import bisect_right

import numpy as np

from tensorcomp.errors import PruningError
from tensorcomp.selection.granularity import Element, Granularity
from tensorcomp.selection.groups import unit_scores
from tensorcomp.selection.scores.base import widened
from tensorcomp.selection.scores.weights_alone import Magnitude
from tensorcomp.selection.streaming_scores import StreamingScores

_BLOCK = 1 << 14  # units whose squares are added up at a time
_POINTS = 2048


class ErrorCurve:
    """The rel-L2 of a tensor by how many units are pruned, the lowest first.

    Values are those of units in the order in which they are pruned: a weight, or, `squared`, the
    sum of the squares of its weights.
    """

    def __init__(self, values: np.ndarray, *, squared: bool = False) -> None:
        self._values = values
        self._squared = squared
        starts = range(0, values.size, _BLOCK)
        sums = [self._squares(start, start + _BLOCK).sum() for start in starts]
        self._sums = np.concatenate([[0.0], np.cumsum(sums)])

    @classmethod
    def of(cls, scores: StreamingScores, name: str, unit: Granularity) -> ErrorCurve:
        """Return the curve of a tensor, its units in the order of (score, index)."""
        whole = scores[name]
        flat = widened(scores.weights[name]).reshape(-1)
        if not isinstance(unit, Element):
            squares = unit.sums(np.square(flat, dtype=np.float64).reshape(whole.shape))
            order = np.argsort(unit_scores(scores, name, unit), kind="stable")
            curve = cls(squares[order], squared=True)
        elif not scores.previous and not scores.masked and scores.score == Magnitude():
            curve = cls(np.sort(whole.reshape(-1)))  # much faster than to sort indices
        else:
            curve = cls(flat[np.argsort(whole.reshape(-1), kind="stable")])
        if not math.isfinite(curve._sums[-1]):
            raise PruningError(
                f"tensor {name!r} holds NaN, infinity or weights too large for an error; leave it "
                "out by 'where'"
            )
        return curve

    def error(self, units: int) -> float:
        """Return the rel-L2 where that many units are pruned; computed in float64."""
        block, total = units // _BLOCK, self._sums[-1]
        pruned = float(self._sums[block] + self._squares(block * _BLOCK, units).sum())
        return math.sqrt(pruned) / math.sqrt(total) if total else 0.0

    def within(self, max_rel_l2: float) -> int:
        """Return the largest number of units whose rel-L2 is at most that."""
        return bisect_right(range(self._values.size + 1), max_rel_l2, key=self.error) - 1

    def points(self) -> tuple[np.ndarray, np.ndarray]:
        """Return numbers of units, rising from 0 to all, and their errors."""
        units = np.unique(np.linspace(0, self._values.size, _POINTS).astype(np.int64))
        errors = np.array([self.error(int(count)) for count in units])
        return units, np.maximum.accumulate(errors)

    def _squares(self, start: int, stop: int) -> np.ndarray:
        values = self._values[start:stop].astype(np.float64)
        return values if self._squared else np.square(values)


def most_within(tolerance: float, errors: np.ndarray, amounts: np.ndarray) -> float:
    """Interpolate the most that may be pruned at a tolerance.

    Errors never fall and begin with 0; amounts, those pruned at these errors, rise.
    """
    last = int(np.searchsorted(errors, tolerance, side="right")) - 1
    if last + 1 == len(errors) or not math.isfinite(errors[last + 1]):
        return float(amounts[last])
    share = (tolerance - errors[last]) / (errors[last + 1] - errors[last])
    return float(amounts[last] + share * (amounts[last + 1] - amounts[last]))
