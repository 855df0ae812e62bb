"""Compute the error of a tensor by how much of it is pruned; bisect."""

from __future__ import annotations

import math
from collections.abc import Callable

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

    Parameters
    ----------
    values : numpy.ndarray
        Of each unit, in the order in which they are pruned: its weight, or, `squared`, the sum of
        the squares of its weights.
    squared : bool
        What the values are.
    """

    def __init__(self, values: np.ndarray, *, squared: bool = False) -> None:
        self._values = values
        self._squared = squared
        starts = range(0, values.size, _BLOCK)
        sums = [self._squares(start, start + _BLOCK).sum() for start in starts]
        self._sums = np.concatenate([[0.0], np.cumsum(sums)])

    @classmethod
    def of(cls, scores: StreamingScores, name: str, unit: Granularity) -> ErrorCurve:
        """Return the curve of a tensor, its units in the order of (score, index).

        Raises
        ------
        PruningError
            If the squares of its weights have no finite sum.
        """
        whole = scores[name]
        flat = widened(scores.weights[name]).reshape(-1)
        if not isinstance(unit, Element):
            squares = unit.sums(np.square(flat, dtype=np.float64).reshape(whole.shape))
            order = np.argsort(unit_scores(scores, name, unit), kind="stable")
            curve = cls(squares[order], squared=True)
        elif not scores.previous and scores.score == Magnitude():
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
        return most_units(lambda units: self.error(units) <= max_rel_l2, 0, self._values.size)

    def points(self) -> tuple[np.ndarray, np.ndarray]:
        """Return numbers of units, rising from 0 to all, and their errors."""
        units = np.unique(np.linspace(0, self._values.size, _POINTS).astype(np.int64))
        errors = np.array([self.error(int(count)) for count in units])
        return units, np.maximum.accumulate(errors)

    def _squares(self, start: int, stop: int) -> np.ndarray:
        values = self._values[start:stop].astype(np.float64)
        return values if self._squared else np.square(values)


def bisect(
    fits: Callable[[float], bool],
    good: float,
    bad: float,
    *,
    middle: Callable[[float, float], float | None],
    evaluations: int | None = None,
) -> float:
    """Find the value nearest to `bad` that fits, by bisection from `good`.

    Parameters
    ----------
    fits : callable
        Whether a value keeps a limit; called on values between the two.
    good, bad : float
        One that does, and one that does not.
    middle : callable
        Given the two nearest values, returns which to try next, None if there is none.
    evaluations : int, optional
        The most calls of `fits`.
    """
    while evaluations != 0 and (value := middle(good, bad)) is not None:
        evaluations = None if evaluations is None else evaluations - 1
        if fits(value):
            good = value
        else:
            bad = value
    return good


def most_units(fits: Callable[[int], bool], least: int, most: int) -> int:
    """Return the largest number up to `most` that fits, `least` if no other does."""

    def middle(good: float, bad: float) -> float | None:
        return (good + bad) // 2 if bad - good > 1 else None

    return int(bisect(lambda units: fits(int(units)), least, most + 1, middle=middle))


def most_within(tolerance: float, errors: np.ndarray, amounts: np.ndarray) -> float:
    """Interpolate the most that may be pruned at a tolerance.

    Parameters
    ----------
    tolerance : float
        At least 0.
    errors : numpy.ndarray
        Never falling, the first one 0.
    amounts : numpy.ndarray
        What is pruned at those errors, rising.
    """
    last = int(np.searchsorted(errors, tolerance, side="right")) - 1
    if last + 1 == len(errors) or not math.isfinite(errors[last + 1]):
        return float(amounts[last])
    share = (tolerance - errors[last]) / (errors[last + 1] - errors[last])
    return float(amounts[last] + share * (amounts[last + 1] - amounts[last]))
