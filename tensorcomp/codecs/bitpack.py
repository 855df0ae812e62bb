"""Integers in as few bits as the largest needs."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.base import Pieces, Serializer
from tensorcomp.codecs.sections import pack_sections, unpack_sections
from tensorcomp.codecs.words import as_rows, as_words
from tensorcomp.errors import CodecError

_SHORTEST_ROW = 16
_U64 = struct.Struct("<Q")


@dataclass(frozen=True)
class Bitpack(Serializer):
    """Store words without the bits that are zero in all of them, at either end.

    An array whose rows differ (fp32 weights of which some rows hold fp16 values) gets a width and a
    shift for each row, where that is smaller; otherwise one for all. Signed integers are stored as
    differences to the smallest. Widths are whole bits from 0 to the word's.

    Layout: length of the side information (uint64); side information, a zstd block of two sections,
    the smallest integer (uint64, 0 if unsigned) and (shift, width) as two bytes, once or for each
    row; then rows as bit planes (see `kernels.bitpack`), rows of 4,096 words where they share one
    width.

    Lossless. Cost: O(n), 0.1 to 0.5 ns an element each way. Not for skewed distributions: use
    `huffman` or `ans`.
    """

    id: ClassVar[str] = "bitpack"

    def encode(self, array: np.ndarray, shared: bytes = b"") -> Pieces:
        """Return the packed planes."""
        from tensorcomp.kernels.bitpack import pack_array

        if array.size == 0:
            return []
        words = as_words(array)
        least = 0
        if array.dtype.kind == "i":
            least = int(array.min())
            words = words - words.dtype.type(least & ((1 << 8 * array.itemsize) - 1))
        rows = as_rows(words)
        spans, planes = pack_array(rows, rows.shape[1] >= _SHORTEST_ROW)
        side = pack_sections([_U64.pack(least & (2**64 - 1)), spans.tobytes()])
        return [_U64.pack(len(side)), side, planes]

    def decode(self, data: np.ndarray, out: np.ndarray, shared: bytes = b"") -> None:
        """Fill `out`."""
        from tensorcomp.kernels.bitpack import flat_bytes, packed_bytes, unpack, unpack_flat

        if out.size == 0:
            return
        words = as_words(out)
        rows = as_rows(words)
        if data.size < 8 or _U64.unpack_from(data)[0] > data.size - 8:
            raise CodecError("bitpack: its side information is cut short")
        length = _U64.unpack_from(data)[0]
        side = unpack_sections(data[8 : 8 + length].tobytes(), 2, 8 + 2 * rows.shape[0] + 2)
        if len(side[0]) != 8:
            raise CodecError("bitpack: the smallest integer has not 8 bytes")
        spans = np.frombuffer(side[1], np.uint8)
        if spans.size not in (2, 2 * rows.shape[0]):
            raise CodecError(f"bitpack: {spans.size // 2} widths for {rows.shape[0]} rows")
        spans = spans.reshape(-1, 2)
        if spans.sum(axis=1, dtype=np.int64).max() > 8 * words.itemsize:
            raise CodecError(f"bitpack: more than the {8 * words.itemsize} bits of a word")
        planes = data[8 + length :]
        if spans.shape[0] == 1:
            size = flat_bytes(words.size, int(spans[0, 1]))
        else:
            size = packed_bytes(spans, rows.shape[1])
        if size != planes.size:
            raise CodecError(f"bitpack: {planes.size} bytes of planes instead of {size}")
        if spans.shape[0] == 1:
            unpack_flat(planes, spans, words.reshape(-1))
        else:
            unpack(planes, spans, rows)
        if out.dtype.kind == "i":
            words += words.dtype.type(_U64.unpack(side[0])[0] & ((1 << 8 * words.itemsize) - 1))
