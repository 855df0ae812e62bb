"""Floats whose rows or columns differ in scale, faster than `floats`."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import Pieces, Serializer
from tensorcomp.codecs.bit_views import as_long_rows, as_words
from tensorcomp.codecs.floats.fields import MIN_BYTES, WRONG, cut_of
from tensorcomp.errors import CodecError, NotRepresentable
from tensorcomp.kernels import native

_MIN_CLASSED = 1 << 12  # elements from which rows may be classed by scale
_MIN_SIZE = {"rows": 1 << 14, "columns": 1 << 12}  # elements of a group, whose table takes time
_SIDE_ROOM = 1 << 14  # bytes of the side information, but for that of rows and columns
_MAX_ITEMSIZE = 4  # bytes of a float: its exponent must fit a byte


@dataclass(frozen=True)
class GroupFloats(Serializer):
    """Code exponents by a Huffman code per group of rows of like scale.

    All other bits are stored as bit planes.

    The groups may be of columns as well, and the top bits of the mantissa go with the exponent.
    Rows of a group are coded one after the other, so that the decoder finds up to four exponents by
    one look into a table (`kernels/huffman_runs.h`).

    Layout: side information and six bit streams (see `kernels/groupfloats.c`), then planes (see
    `kernels/bit_planes.h`), followed by zeros if they have less than 8 bytes, since the decoder
    loads whole words.

    Lossless: bits are moved, never interpreted. Cost: O(n), 1 ns an element to encode, half of that
    to decode; a nanosecond more along columns. Not for 64-bit floats, nor for integers, nor where
    few distinct values occur (`palette`, `grid`, `sparse`).

    Parameters
    ----------
    mantissa_bits : int
        Top bits of the mantissa, 0 to 4, that are coded with the exponent; less where a byte would
        not hold both. 0 decodes fastest.
    groups : int
        How many there may be, a power of two up to 8.
    along : {"rows", "columns"}
        Which of them make the groups.

    References
    ----------
    Exponents coded apart: Hershcovitch et al. 2024, "ZipNN"; Zhang et al. 2025, "DFloat11".
    """

    id: ClassVar[str] = "groupfloats"
    for_any_array: ClassVar[bool] = True
    mantissa_bits: int = argument(2, least=0, most=4)
    groups: int = argument(8, choices=(1, 2, 4, 8))
    along: str = argument("rows", choices=_MIN_SIZE)

    def encode(self, array: np.ndarray, shared: bytes = b"") -> Pieces:
        """Return the coded bytes."""
        rows = as_long_rows(as_words(array))
        mantissa = _mantissa_of(array.dtype)
        # Symbols come at its beginning, planes at its end; fresh memory between takes no time.
        room = np.empty(rows.nbytes + 17 * rows.shape[0] + rows.shape[1] + _SIDE_ROOM, np.uint8)
        sizes = np.empty(2, np.int64)
        native.groupfloats_encode(
            rows, mantissa, min(self.mantissa_bits, mantissa), self._affordable(rows),
            self._by_columns(rows), rows.size >= _MIN_CLASSED, room, sizes,
        )  # fmt: skip
        coded, planes = sizes
        if coded == 0:
            raise NotRepresentable("groupfloats: no code makes these exponents smaller")
        return [room[:coded], room[-planes:]]

    def _by_columns(self, rows: np.ndarray) -> bool:
        return self.along == "columns" and rows.shape[0] > 1

    def _affordable(self, rows: np.ndarray) -> int:
        """Return how many groups are worth trying: a power of two of enough elements each."""
        if rows.shape[0] == 1:
            return 1
        return min(self.groups, 1 << max(rows.size // _MIN_SIZE[self.along], 1).bit_length() - 1)

    def decode(self, data: np.ndarray, out: np.ndarray, shared: bytes = b"") -> None:
        """Fill `out`."""
        if data.size < MIN_BYTES:
            raise CodecError("groupfloats: the coded bytes are cut short")
        rows = as_long_rows(as_words(out))
        mantissa = _mantissa_of(out.dtype)
        wrong = native.groupfloats_decode(data, mantissa, self._by_columns(rows), rows)
        if wrong:
            raise CodecError(f"groupfloats: {WRONG[wrong]}")


@functools.cache
def _mantissa_of(dtype: np.dtype) -> int:
    """Return the mantissa bits of a float, or those of one of its size."""
    if dtype.itemsize > _MAX_ITEMSIZE:
        raise NotRepresentable(f"groupfloats: the exponents of {dtype} need more than a byte")
    return cut_of(dtype, 0).low
