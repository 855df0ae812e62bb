"""Contexts: classes of elements by the scale of their row and of their column.

Weights of one layer share a distribution up to a scale that varies with the row (output) and the
column (input). Each row and each column gets a level from 0 to 15, in steps of equal width on the
mean of its integers (exponents, which are logarithms already) or on log2 of their mean magnitude
(signed codes). The context of an element is a step function of the sum of its two levels. Columns'
levels are learned once for a tensor, from a sample of its rows, and shared by its chunks; rows'
levels belong to the chunk. Everything is integer arithmetic, so that equal inputs give equal bytes
on every machine.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from tensorcomp.codecs.sections import pack_sections, unpack_sections
from tensorcomp.codecs.words import as_rows
from tensorcomp.errors import CodecError

LEVELS = 16
SUMS = 2 * LEVELS - 1
_FRACTION = 6  # levels are cut from means in units of 1/64
_SHORTEST_ROW = 16  # a level a row costs 3 bits or so: shorter rows cannot earn it
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
    """

    row_levels: np.ndarray
    column_levels: np.ndarray
    context_of: np.ndarray

    def expand(self, shift: int = 0) -> np.ndarray:
        """Return context << shift of every element, (R, C) uint16."""
        from tensorcomp.kernels.contexts import fill_contexts

        out = np.empty((self.row_levels.size, self.column_levels.size), np.uint16)
        value_of = self.context_of.astype(np.uint16) << shift
        fill_contexts(self.row_levels, self.column_levels, value_of, out)
        return out

    def joined(self, step: int) -> ContextModel:
        """Return the model in which each `step` neighbouring contexts are one."""
        return ContextModel(self.row_levels, self.column_levels, self.context_of // step)


def learn_columns(array: np.ndarray) -> bytes:
    """Return the columns' levels and the width of a level, learned from rows of a tensor.

    Returns nothing where rows are too short or too few for contexts to pay.
    """
    from tensorcomp.kernels.contexts import magnitude_sums

    matrix = as_rows(array)
    rows, columns = matrix.shape
    if rows < 2 or columns < _SHORTEST_ROW:
        return b""
    row_sums = np.zeros(rows, np.int64)
    column_sums = np.zeros(columns, np.int64)
    magnitude_sums(matrix, row_sums, column_sums)
    by_column = _statistic(column_sums, rows, array.dtype)
    by_row = _statistic(row_sums, columns, array.dtype)
    width = max(_width(by_column), _width(by_row))
    levels = _levels(by_column, width)
    return pack_sections([_U64.pack(width), levels.tobytes()])


def learn_model(array: np.ndarray, contexts: int, shared: bytes) -> ContextModel | None:
    """Return the context model of a chunk, or None where one context is all there can be."""
    from tensorcomp.kernels.contexts import row_magnitude_sums

    matrix = as_rows(array)
    rows, columns = matrix.shape
    if contexts == 1 or columns < _SHORTEST_ROW or (rows < 2 and not shared):
        return None
    row_sums = np.zeros(rows, np.int64)
    row_magnitude_sums(matrix, row_sums)
    by_row = _statistic(row_sums, columns, array.dtype)
    width, column_levels = _unpack_columns(shared, columns)
    row_levels = _levels(by_row, width or _width(by_row))
    sums = np.convolve(
        np.bincount(row_levels, minlength=LEVELS), np.bincount(column_levels, minlength=LEVELS)
    )
    return ContextModel(row_levels, column_levels, _cut_sums(sums, contexts))


def _unpack_columns(shared: bytes, columns: int) -> tuple[int, np.ndarray]:
    if not shared:
        return 0, np.zeros(columns, np.uint8)
    width, levels = unpack_sections(shared, 2, 8 + columns)
    if len(width) != 8 or len(levels) != columns:
        raise CodecError(f"levels for {len(levels)} columns where the array has {columns}")
    column_levels = np.frombuffer(levels, np.uint8)
    if column_levels.max() >= LEVELS:
        raise CodecError(f"a column's level is {column_levels.max()}, the highest is {LEVELS - 1}")
    return _U64.unpack(width)[0], column_levels


def _statistic(sums: np.ndarray, count: int, dtype: np.dtype) -> np.ndarray:
    """Return means in units of 1/64; of signed integers, log2 of the mean magnitude."""
    if dtype.kind != "i":
        return (sums << _FRACTION) // count
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
    return (whole << _FRACTION) | fraction


def _edges(values: np.ndarray) -> tuple[int, int]:
    """Return the values that a fiftieth of all lies below and above."""
    order = np.sort(values)
    tail = order.size // 50
    return int(order[tail]), int(order[order.size - 1 - tail])


def _width(values: np.ndarray) -> int:
    low, high = _edges(values)
    return (high - low) // (LEVELS - 1) + 1


def _levels(values: np.ndarray, width: int) -> np.ndarray:
    low, high = _edges(values)
    spare = LEVELS * width - (high - low + 1)  # centre what is narrower than the levels
    return np.clip((values - low + spare // 2) // width, 0, LEVELS - 1).astype(np.uint8)


def _cut_sums(counts: np.ndarray, contexts: int) -> np.ndarray:
    """Return the context of each sum of levels: equal steps between the 2nd and 98th percentile."""
    below = np.cumsum(counts)
    low = int(np.searchsorted(below, below[-1] // 50, side="right"))
    high = int(np.searchsorted(below, below[-1] - below[-1] // 50))
    steps = (np.arange(SUMS) - low) * contexts // max(high - low + 1, 1)
    return np.clip(steps, 0, contexts - 1).astype(np.uint8)


def pack_model(model: ContextModel | None) -> list[bytes]:
    """Return the chunk's own part of the model as two sections."""
    if model is None:
        return [b"", b""]
    return [model.context_of.tobytes(), model.row_levels.tobytes()]


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
    rows, columns = as_rows(out).shape
    context_of = np.frombuffer(sections[0], np.uint8)
    row_levels = np.frombuffer(sections[1], np.uint8)
    if context_of.size != SUMS or row_levels.size != rows:
        raise CodecError(f"levels for {row_levels.size} rows where the array has {rows}")
    if rows and row_levels.max() >= LEVELS:
        raise CodecError(f"a row's level is {row_levels.max()}, the highest is {LEVELS - 1}")
    if context_of.max() >= contexts:
        raise CodecError(f"context {context_of.max()} of {contexts}")
    return ContextModel(row_levels, _unpack_columns(shared, columns)[1], context_of)
