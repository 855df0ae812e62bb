"""Contexts: classes of elements by the scale of their row and column.

Weights of one layer share a distribution up to a scale that varies with the row (output) and the
column (input). Each row and each column gets a level from 0 to 15, in steps of equal width on the
mean of its integers (exponents, which are logarithms already) or on log2 of their mean magnitude
(signed codes). The context of an element is a step function of the sum of its two levels.

Levels belong to the chunk. Only where rows are so long that a chunk has few of them are the
columns' levels learned once for the tensor, from a sample of its rows, and shared. Everything is
integer arithmetic, so that equal inputs give equal bytes on every machine. Reading damaged levels
raises `CodecError`.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import ArraySpec, Serializer, spec_of
from tensorcomp.codecs.bit_views import MIN_ROW, as_rows, as_words
from tensorcomp.codecs.entropy.side_info import pack_side_info, unpack_side_info
from tensorcomp.errors import CodecError
from tensorcomp.kernels import native

LEVELS = 16
SUMS = 2 * LEVELS - 1
_LONG_ROW = 4096  # columns; a chunk has fewer than 256 such rows
_U64 = struct.Struct("<Q")


class ContextModel(NamedTuple):
    """Assignment of the elements of a chunk to contexts.

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


# A model's fields, as kernels take them: None where all elements have one context.
KernelModel: TypeAlias = "tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None]"
ONE_CONTEXT: KernelModel = None, None, None


def shares_columns(spec: ArraySpec) -> bool:
    """Return whether chunks have too few rows to class their own columns."""
    return len(spec.shape) > 1 and math.prod(spec.shape[1:]) > _LONG_ROW


def learn_columns(array: np.ndarray) -> bytes:
    """Return the columns' levels and their width, for the chunks to share.

    Learned from a sample of the rows. Returns nothing where rows are so short that each chunk has
    enough of them to class its own columns, which is better.
    """
    matrix = integers(array)
    rows, columns = matrix.shape
    if rows < 2 or columns <= _LONG_ROW:
        return b""
    row_levels, column_levels = np.empty(rows, np.uint8), np.empty(columns, np.uint8)
    width = native.contexts_find(matrix, is_signed(array), 0, 1, row_levels, column_levels, None)
    return pack_side_info([_U64.pack(width), column_levels.tobytes()])


@dataclass(frozen=True)
class ContextCoder(Serializer):
    """Base of entropy coders whose chunks share the levels of long rows' columns."""

    for_any_array: ClassVar[bool] = True
    contexts: int = argument(1, choices=(1, 2, 4, 8, 16, 32))

    def shares(self, spec: ArraySpec) -> bool:
        """Return whether chunks of this shape share the levels of their columns."""
        return self.contexts > 1 and spec.dtype.itemsize <= 2 and shares_columns(spec)

    def fit(self, array: np.ndarray) -> bytes:
        """Return the levels of the columns."""
        return learn_columns(array) if self.shares(spec_of(array)) else b""


def learn_model(array: np.ndarray, contexts: int, shared: bytes) -> ContextModel | None:
    """Return the context model of a chunk.

    None where one context is all there can be.
    """
    matrix = integers(array)
    if contexts == 1 or not has_levels(matrix, shared):
        return None
    rows, columns = matrix.shape
    row_levels, context_of = np.empty(rows, np.uint8), np.empty(SUMS, np.uint8)
    width, known = unpack_columns(shared, columns)
    column_levels = np.empty(columns, np.uint8) if known is None else known.copy()
    native.contexts_find(
        matrix, is_signed(array), width, contexts, row_levels, column_levels, context_of
    )
    return ContextModel(row_levels, column_levels, context_of)


def has_levels(matrix: np.ndarray, shared: bytes) -> bool:
    """Return whether rows and columns of a matrix can have levels."""
    rows, columns = matrix.shape
    return columns >= MIN_ROW and (rows > 1 or bool(shared))


def is_signed(array: np.ndarray) -> bool:
    """Return whether levels are logarithms.

    Of magnitudes, that is, or of how often a mask is true.
    """
    return array.dtype.kind in "ib"


def integers(array: np.ndarray) -> np.ndarray:
    """Return the matrix of an array as integers.

    Other elements count as their bits do, true as 1.
    """
    if array.dtype.kind == "b":
        return as_rows(as_words(array) != 0)
    return as_rows(array if array.dtype.kind in "iu" else as_words(array))


def unpack_columns(shared: bytes, columns: int) -> tuple[int, np.ndarray | None]:
    """Return the width of a level and the columns' levels.

    (0, None) where nothing is shared.
    """
    if not shared:
        return 0, None
    width, levels = unpack_side_info(shared, 2, 8 + columns)
    if len(width) != 8:
        raise CodecError(f"expected 8 bytes for the width of a level, got {len(width)}")
    return _U64.unpack(width)[0], _checked_levels(levels, columns, "column")


def _checked_levels(levels: bytes, count: int, what: str) -> np.ndarray:
    array = np.frombuffer(levels, np.uint8)
    if array.size != count:
        raise CodecError(f"expected {count} levels of {what}s, got {array.size}")
    if count and array.max() >= LEVELS:
        raise CodecError(f"expected levels of {what}s up to {LEVELS - 1}, got {array.max()}")
    return array


def unpack_model(
    sections: list[bytes], contexts: int, out: np.ndarray, shared: bytes
) -> KernelModel:
    """Read the contexts of sums and the levels of rows, then of columns."""
    if contexts == 1:
        return ONE_CONTEXT
    if out.itemsize > 2:
        raise CodecError(f"expected 1 context for {out.itemsize}-byte elements, got {contexts}")
    rows, columns = as_rows(out).shape
    context_of = np.frombuffer(sections[0], np.uint8)
    if context_of.size != SUMS or context_of.max() >= contexts:
        raise CodecError(f"not every sum of levels has one of {contexts} contexts")
    row_levels = _checked_levels(sections[1][:rows], rows, "row")
    _, column_levels = unpack_columns(shared, columns)
    if column_levels is None:
        column_levels = _checked_levels(sections[1][rows:], columns, "column")
    return row_levels, column_levels, context_of
