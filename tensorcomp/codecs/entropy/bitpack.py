"""Integers in as few bits as the largest needs."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.base import Pieces, Serializer
from tensorcomp.codecs.bit_views import MIN_ROW, as_rows, as_words
from tensorcomp.codecs.entropy.side_info import pack_side_info, split_side, unpack_side_info
from tensorcomp.errors import CodecError
from tensorcomp.kernels import native

_SPARE = 16  # bytes by which the planes of a few words may be larger
_U64 = struct.Struct("<Q")


@dataclass(frozen=True)
class Bitpack(Serializer):
    """Store words without the bits that are zero in all of them, at either end.

    An array whose rows differ (fp32 weights of which some rows hold fp16 values) gets a width and a
    shift for each row, where that is smaller; otherwise one for all. Signed integers are stored as
    differences to the smallest. Widths are whole bits from 0 to the word's.

    Layout: length of the side information (uint64); side information, a zstd block of two sections,
    the smallest integer (uint64, 0 if unsigned) and (shift, width) as two bytes, once or for each
    row; then rows as bit planes (see `kernels/bit_planes.h`), rows of 4,096 words where they share
    one width.

    Lossless. Cost: O(n), 0.1 to 0.5 ns an element each way. Not for skewed distributions: use
    `huffman` or `ans`.
    """

    id: ClassVar[str] = "bitpack"

    def encode(self, array: np.ndarray, shared: bytes = b"") -> Pieces:
        """Return the packed planes."""
        words = as_words(array)
        least = 0
        if array.dtype.kind == "i":
            least = int(array.min())
            words = words - words.dtype.type(least & ((1 << 8 * array.itemsize) - 1))
        rows = as_rows(words)
        spans = np.empty((rows.shape[0], 2), np.uint8)
        planes = np.empty(rows.nbytes + _SPARE, np.uint8)
        sizes = np.empty(2, np.int64)
        native.bitpack_pack(rows, rows.shape[1] >= MIN_ROW, spans, planes, sizes)
        side = pack_side_info([_U64.pack(least & (2**64 - 1)), spans[: sizes[0]].tobytes()])
        return [_U64.pack(len(side)), side, planes[: sizes[1]]]

    def decode(self, data: np.ndarray, out: np.ndarray, shared: bytes = b"") -> None:
        """Fill `out`."""
        words = as_words(out)
        rows = as_rows(words)
        packed, planes = split_side(data, 0)
        side = unpack_side_info(packed, 2, 8 + 2 * rows.shape[0] + 2)
        if len(side[0]) != 8:
            raise CodecError(f"bitpack: expected 8 bytes for the minimum, got {len(side[0])}")
        spans = np.frombuffer(side[1], np.uint8)
        if spans.size not in (2, 2 * rows.shape[0]):
            raise CodecError(f"bitpack: expected {rows.shape[0]} widths, got {spans.size // 2}")
        size = native.bitpack_unpack(planes, spans.reshape(-1, 2), rows)
        if size < 0:
            raise CodecError(f"bitpack: more than the {8 * words.itemsize} bits of a word")
        if size != planes.size:
            raise CodecError(f"bitpack: expected {size} bytes of planes, got {planes.size}")
        if out.dtype.kind == "i":
            words += words.dtype.type(_U64.unpack(side[0])[0] & ((1 << 8 * words.itemsize) - 1))
