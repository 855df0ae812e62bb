"""GPTQ as it was published, and plain rounding: groups of a row with a scale and a zero.

A plain reference, to compare with. Codes are of fixed width; a group has a scale of 16 bits and a
zero of as many bits as a code, as in the files of GPTQ and AWQ.

References
----------
Frantar et al. 2022, "GPTQ: Accurate post-training quantization for generative pre-trained
transformers".
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.common.checkpoints import Array

DAMPING = 0.01  # of the mean diagonal
_SCALE_BITS = 16


@dataclass(frozen=True)
class Grid:
    """Even levels of the rows of a group of columns, from the least to the largest value.

    Scales and zeros are (rows, 1).
    """

    scale: Array
    zero: Array
    top: int

    @classmethod
    def of(cls, columns: Array, bits: int) -> "Grid":
        """Return the grid of some columns (rows, n)."""
        low = np.minimum(columns.min(axis=1, keepdims=True), 0)
        high = np.maximum(columns.max(axis=1, keepdims=True), 0)
        top = 2**bits - 1
        scale = ((high - low) / top).astype(np.float16).astype(np.float32)
        scale = np.maximum(scale, np.float32(np.finfo(np.float16).smallest_subnormal))
        return cls(scale, np.clip(np.round(-low / scale), 0, top), top)

    def rounded(self, columns: Array) -> Array:
        """Return the nearest levels."""
        codes = np.clip(np.round(columns / self.scale) + self.zero, 0, self.top)
        return (codes - self.zero) * self.scale


@dataclass(frozen=True)
class Format:
    """Codes of so many bits, in groups of so many columns of a row."""

    bits: int
    group: int

    @property
    def name(self) -> str:
        """Text for tables."""
        return f"{self.bits} bits, g{self.group}"

    def nbytes(self, matrix: Array) -> int:
        """Return how many bytes a matrix takes: codes, scales and zeros."""
        rows, columns = matrix.shape
        groups = rows * math.ceil(columns / self.group)
        return math.ceil((self.bits * matrix.size + (_SCALE_BITS + self.bits) * groups) / 8)

    def groups(self, columns: int) -> Iterator[slice]:
        """Yield the groups; the last may be shorter."""
        for start in range(0, columns, self.group):
            yield slice(start, min(start + self.group, columns))

    def rounded(self, matrix: Array) -> Array:
        """Round to the nearest level."""
        found = np.empty(matrix.shape, np.float32)
        for part in self.groups(matrix.shape[1]):
            columns = matrix[:, part].astype(np.float32)
            found[:, part] = Grid.of(columns, self.bits).rounded(columns)
        return found


def gptq(matrix: Array, moments: Array, form: Format, *, act_order: bool = False) -> Array:
    """Round column after column; those to come make up for the error of each.

    Parameters
    ----------
    matrix : numpy.ndarray
        (rows, n)
    moments : numpy.ndarray
        (n, n), the mean of x xᵀ of what the matrix is multiplied with.
    form : Format
    act_order : bool
        Take the columns of the largest moments first. Groups are those of the original order
        ("static groups"), so that no order has to be stored.

    Returns
    -------
    numpy.ndarray
        What is decoded, float32.
    """
    damped = moments.astype(np.float64)
    mean = float(np.diagonal(damped).mean()) or 1.0
    damped[np.diag_indices_from(damped)] += DAMPING * mean
    order = np.arange(len(damped))
    fixed: dict[int, Grid] = {}
    if act_order:
        order = np.argsort(-np.diagonal(damped), kind="stable")
        for number, part in enumerate(form.groups(len(order))):
            fixed[number] = Grid.of(matrix[:, part].astype(np.float32), form.bits)
    inverse = np.linalg.inv(damped[np.ix_(order, order)])
    # Of the inverse: row i has what columns after i must take of the error of column i.
    upper = np.linalg.cholesky(inverse).T.astype(np.float32)
    work = matrix.astype(np.float32)[:, order]
    found = np.empty_like(work)
    for part in form.groups(len(order)):
        start, stop = part.start, part.stop
        errors = np.empty((len(work), stop - start), np.float32)
        own = Grid.of(work[:, part], form.bits)
        for i in range(start, stop):
            grid = fixed.get(int(order[i]) // form.group, own)
            column = work[:, i : i + 1]
            found[:, i : i + 1] = grid.rounded(column)
            error = (column - found[:, i : i + 1]) / upper[i, i]
            errors[:, i - start : i - start + 1] = error
            work[:, i + 1 : stop] -= error * upper[i, i + 1 : stop]
        work[:, stop:] -= errors @ upper[start:stop, stop:]
    result = np.empty_like(found)
    result[:, order] = found
    return result
