"""Mean and variance of weights, and how their variance differs by row and column."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from tensorcomp.benchmark.samples import Piece

_HUGE = 1e280  # squares beyond, summed up and weighted, may leave the range of float64
_AT_ONCE = 1 << 18  # elements widened to float64
_FEWEST = 64  # elements that a row's or column's own variance is learned from
_FINE = 32  # classes of variance an octave
_LOWEST = -4096  # class of variance 0


@dataclass(frozen=True)
class Weights:
    """A piece, and how its elements are distributed.

    Parameters
    ----------
    piece : Piece
    mean, square : float
        Means of the elements and of their squares.
    classes : mapping of int to float
        How many elements have which variance; class k is that of variance 2**(k / 32), -4096 that
        of none. The variance of an element is that of its row × that of its column / that of all,
        each about the mean of all; rows and columns of less than 64 elements have that of all.
    """

    piece: Piece
    mean: float
    square: float
    classes: dict[int, int]

    @property
    def finite(self) -> bool:
        """Whether every element is, and what is reckoned with their squares."""
        return self.square < _HUGE  # not so if it is NaN

    @property
    def scale(self) -> float:
        """Root mean square."""
        return math.sqrt(self.square)

    @property
    def variance(self) -> float:
        """Mean square about the mean."""
        return max(self.square - self.mean**2, 0.0)


def look_at(piece: Piece) -> Weights:
    """Return how the elements of a piece of floats are distributed."""
    array = piece.load()
    matrix = array.reshape(array.shape[0], -1) if array.ndim > 1 else array.reshape(1, -1)
    total = squares = 0.0
    with np.errstate(all="ignore"):
        for _, block in _blocks(matrix):
            total += float(block.sum())
            squares += float(np.square(block).sum())
        mean, square = total / matrix.size, squares / matrix.size
        found = Weights(piece, mean, square, {})
        if not found.finite:
            return found
        return Weights(piece, mean, square, _classes(matrix, mean))


def _blocks(matrix: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield rows of a matrix in float64, some at a time."""
    step = max(_AT_ONCE // matrix.shape[1], 1)
    for start in range(0, matrix.shape[0], step):
        rows = slice(start, min(start + step, matrix.shape[0]))
        yield rows, matrix[rows].astype(np.float64)


def _classes(matrix: np.ndarray, mean: float) -> dict[int, int]:
    rows, columns = np.zeros(matrix.shape[0]), np.zeros(matrix.shape[1])
    for part, block in _blocks(matrix):
        block -= mean
        np.square(block, out=block)
        rows[part] = block.mean(axis=1)
        columns += block.sum(axis=0)
    columns /= matrix.shape[0]
    variance = float(rows.mean())
    if variance == 0:
        return {_LOWEST: matrix.size}
    if matrix.shape[1] < _FEWEST:
        rows[:] = variance
    if matrix.shape[0] < _FEWEST:
        columns[:] = variance
    by_row, by_column = np.log2(rows), np.log2(columns / variance)
    counts = np.zeros(-2 * _LOWEST, np.int64)
    for part, _ in _blocks(matrix):
        octaves = np.add.outer(by_row[part], by_column).reshape(-1)
        numbers = np.maximum(np.rint(_FINE * octaves), _LOWEST).astype(np.int64) - _LOWEST
        counts += np.bincount(numbers, minlength=counts.size)
    present = np.flatnonzero(counts)
    return dict(zip((present + _LOWEST).tolist(), counts[present].tolist(), strict=True))


def join_classes(weights: Iterable[Weights]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return how many elements of a checkpoint have which variance: numbers, and variances."""
    joined: dict[int, float] = {}
    for found in weights:
        for number, count in found.classes.items():
            joined[number] = joined.get(number, 0.0) + found.piece.share * count
    variances = (0.0 if n <= _LOWEST else 2.0 ** (n / _FINE) for n in joined)
    return tuple(joined.values()), tuple(variances)
