"""Contexts: classes of elements by the scale of their row and of their column.

Weights of one layer share a distribution up to a scale that varies with the row (output) and the
column (input). Each row and each column gets a level from 0 to 15, in steps of equal width on the
mean of its integers (exponents, which are logarithms already) or on log2 of their mean magnitude
(signed codes). The context of an element is a step function of the sum of its two levels.

Levels belong to the chunk. Only where rows are so long that a chunk has few of them are the
columns' levels learned once for the tensor, from a sample of its rows, and shared. Everything is
integer arithmetic, so that equal inputs give equal bytes on every machine.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace

import numpy as np

from tensorcomp.codecs.base import ArraySpec
from tensorcomp.codecs.sections import pack_sections, unpack_sections
from tensorcomp.codecs.words import as_rows, as_words
from tensorcomp.errors import CodecError

LEVELS = 16
SUMS = 2 * LEVELS - 1
_FRACTION = 6  # levels are cut from means in units of 1/64
_SHORTEST_ROW = 16  # a level a row costs 3 bits or so: shorter rows cannot earn it
_LONG_ROW = 4096  # columns; a chunk has fewer than 256 such rows
_U64 = struct.Struct("<Q")


@dataclass(frozen=True)
class ContextModel:
    """Which context each element of a chunk belongs to.

    Parameters
    ----------
    row_levels : numpy.ndarray
        (R,) uint8 below `LEVELS`.
    column_levels : numpy.ndarray
        (C,) uint8 below `LEVELS`.
    context_of : numpy.ndarray
        (`SUMS`,) uint8: the context of each sum of two levels, never falling.
    own : bool
        Whether the chunk holds its columns' levels itself, and does not share them.
    """

    row_levels: np.ndarray
    column_levels: np.ndarray
    context_of: np.ndarray
    own: bool

    def expand(self, shift: int = 0) -> np.ndarray:
        """Return context << shift of every element, (R, C) uint16."""
        from tensorcomp.kernels.contexts import fill_contexts

        out = np.empty((self.row_levels.size, self.column_levels.size), np.uint16)
        value_of = self.context_of.astype(np.uint16) << shift
        fill_contexts(self.row_levels, self.column_levels, value_of, out)
        return out

    def joined(self, step: int) -> ContextModel:
        """Return the model in which each `step` neighbouring contexts are one."""
        return replace(self, context_of=self.context_of // step)


def shares_columns(spec: ArraySpec) -> bool:
    """Return whether a chunk of such a tensor has too few rows to tell its columns apart."""
    return len(spec.shape) > 1 and math.prod(spec.shape[1:]) > _LONG_ROW


def learn_columns(array: np.ndarray) -> bytes:
    """Return what the chunks of a tensor with long rows share: levels of columns, their width.

    Learned from a sample of the rows. Returns nothing where rows are so short that each chunk has
    enough of them to tell its own columns apart, which is better.
    """
    rows, columns = _integers(array).shape
    if rows < 2 or columns <= _LONG_ROW:
        return b""
    by_row, by_column = _statistics(array)
    edges = _edges(by_column)
    width = max(_width(edges), _width(_edges(by_row)))
    return pack_sections([_U64.pack(width), _levels(by_column, edges, width).tobytes()])


def learn_model(array: np.ndarray, contexts: int, shared: bytes) -> ContextModel | None:
    """Return the context model of a chunk, or None where one context is all there can be."""
    from tensorcomp.kernels.contexts import row_magnitude_sums

    matrix = _integers(array)
    rows, columns = matrix.shape
    if contexts == 1 or columns < _SHORTEST_ROW or (rows < 2 and not shared):
        return None
    if shared:
        row_sums = np.zeros(rows, np.int64)
        row_magnitude_sums(matrix, row_sums)
        by_row = _statistic(row_sums, columns, array.dtype)
        width, column_levels = _unpack_columns(shared, columns)
    else:
        by_row, by_column = _statistics(array)
        edges = _edges(by_column)
        width = max(_width(edges), _width(_edges(by_row)))
        column_levels = _levels(by_column, edges, width)
    row_levels = _levels(by_row, _edges(by_row), width)
    sums = np.convolve(
        np.bincount(row_levels, minlength=LEVELS), np.bincount(column_levels, minlength=LEVELS)
    )
    return ContextModel(row_levels, column_levels, _cut_sums(sums, contexts), own=not shared)


def _statistics(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the statistic of each row and of each column."""
    from tensorcomp.kernels.contexts import magnitude_sums

    matrix = _integers(array)
    rows, columns = matrix.shape
    row_sums = np.zeros(rows, np.int64)
    column_sums = np.zeros(columns, np.int64)
    magnitude_sums(matrix, row_sums, column_sums)
    return (
        _statistic(row_sums, columns, array.dtype),
        _statistic(column_sums, rows, array.dtype),
    )


def _integers(array: np.ndarray) -> np.ndarray:
    """Return the matrix of an array; what is no integer counts as its bits do."""
    return as_rows(array if array.dtype.kind in "iub" else as_words(array))


def _unpack_columns(shared: bytes, columns: int) -> tuple[int, np.ndarray]:
    width, levels = unpack_sections(shared, 2, 8 + columns)
    if len(width) != 8:
        raise CodecError("the width of a level has not 8 bytes")
    return _U64.unpack(width)[0], _checked_levels(levels, columns, "column")


def _checked_levels(levels: bytes, count: int, what: str) -> np.ndarray:
    array = np.frombuffer(levels, np.uint8)
    if array.size != count:
        raise CodecError(f"{array.size} levels for {count} {what}s")
    if count and array.max() >= LEVELS:
        raise CodecError(f"a {what}'s level is {array.max()}, the highest is {LEVELS - 1}")
    return array


def _statistic(sums: np.ndarray, count: int, dtype: np.dtype) -> np.ndarray:
    """Return means in units of 1/64; of signed integers, log2 of the mean magnitude."""
    if dtype.kind != "i":
        means: np.ndarray = (sums << _FRACTION) // count
        return means
    return _log2((sums << 8) // count + 1)


def _log2(values: np.ndarray) -> np.ndarray:
    """Return log2 of positive integers in units of 1/64, by integer arithmetic alone."""
    _, exponents = np.frexp(values.astype(np.float64))  # exact: sums stay far below 2**53
    whole = exponents.astype(np.int64) - 1
    mantissas = (values << 20) >> whole  # in [2**20, 2**21)
    fraction = np.zeros_like(values)
    for _ in range(_FRACTION):  # square, and see whether it passes 2
        mantissas = (mantissas * mantissas) >> 20
        bit = mantissas >> 21
        mantissas >>= bit
        fraction = (fraction << 1) | bit
    logarithms: np.ndarray = (whole << _FRACTION) | fraction
    return logarithms


def _edges(values: np.ndarray) -> tuple[int, int]:
    """Return the values that a fiftieth of all lies below and above."""
    tail = values.size // 50
    order = np.partition(values, (tail, values.size - 1 - tail))
    return int(order[tail]), int(order[values.size - 1 - tail])


def _width(edges: tuple[int, int]) -> int:
    """Return the least width of a level at which all levels reach from edge to edge."""
    return (edges[1] - edges[0]) // (LEVELS - 1) + 1


def _levels(values: np.ndarray, edges: tuple[int, int], width: int) -> np.ndarray:
    low, high = edges
    spare = LEVELS * width - (high - low + 1)  # centre what is narrower than the levels
    levels = (values - (low - spare // 2)) // width
    clipped: np.ndarray = np.minimum(np.maximum(levels, 0), LEVELS - 1).astype(np.uint8)
    return clipped


def _cut_sums(counts: np.ndarray, contexts: int) -> np.ndarray:
    """Return the context of each sum of levels: equal steps between the 2nd and 98th percentile."""
    below = np.cumsum(counts)
    low = int(np.searchsorted(below, below[-1] // 50, side="right"))
    high = int(np.searchsorted(below, below[-1] - below[-1] // 50))
    steps = (np.arange(SUMS) - low) * contexts // max(high - low + 1, 1)
    return np.clip(steps, 0, contexts - 1).astype(np.uint8)


def pack_model(model: ContextModel | None) -> list[bytes]:
    """Return the chunk's own part of the model as two sections: contexts of sums, levels."""
    if model is None:
        return [b"", b""]
    columns = model.column_levels.tobytes() if model.own else b""
    return [model.context_of.tobytes(), model.row_levels.tobytes() + columns]


def unpack_model(
    sections: list[bytes], contexts: int, out: np.ndarray, shared: bytes
) -> ContextModel | None:
    """Read what `pack_model` wrote for a chunk of the shape of `out`.

    Raises
    ------
    CodecError
        If a level or a context is out of range, or their number is not the array's.
    """
    if contexts == 1:
        return None
    if out.itemsize > 2:
        raise CodecError(f"{contexts} contexts, though elements of {out.itemsize} bytes have one")
    rows, columns = as_rows(out).shape
    context_of = np.frombuffer(sections[0], np.uint8)
    if context_of.size != SUMS or context_of.max() >= contexts:
        raise CodecError(f"not every sum of levels has one of {contexts} contexts")
    own = not shared
    row_levels = _checked_levels(sections[1][:rows], rows, "row")
    if own:
        column_levels = _checked_levels(sections[1][rows:], columns, "column")
    else:
        column_levels = _unpack_columns(shared, columns)[1]
    return ContextModel(row_levels, column_levels, context_of, own)
