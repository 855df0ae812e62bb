"""Sparse sets of indices in about log2 C(n, k) bits.

They are masks, or ascending integers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tensorcomp.codecs.base import Pieces, Serializer
from tensorcomp.errors import CodecError, NotRepresentable
from tensorcomp.kernels import native

_U64 = struct.Struct("<Q")
_COUNT = struct.Struct("<?Q")
_PADDING = bytes(8)  # a decoder loads whole words
_CLASSES = 172  # of gaps below 2**44
_BEYOND, _NO_CODE = -1, -2  # what kernels return


@dataclass(frozen=True)
class Gaps(Serializer):
    """Code the gaps between the true elements of a mask.

    Or between integers that strictly increase.

    A gap is a canonical Huffman code (at most 12 bits) for its highest three bits, then its other
    bits as they are: close to entropy for random positions, and adapted to any other law of the
    gaps. Of a mask with more true than false elements the false ones are coded.

    Layout: for a mask, whether the coded elements are the false ones (1 byte) and how many there
    are (uint64); for integers, the first one's bits, sign-extended (uint64). Then the number of
    classes of gaps (1 byte), the lengths of their codes, 4 bits each, low half first, and the gaps,
    low bit first. The class of a gap is the gap below 4, else 4 × (position of its highest bit - 1)
    + the two bits below that. An array without elements has no bytes.

    Lossless. Cost: O(n) for a mask, O(k) for integers; 3 to 5 ns an index each way. Rate: within
    1.5 % of log2 C(n, k) at random positions and densities from 0.1 % to 30 % (or 70 % to 99.9 %).
    Not for densities near half (`bitpack`), nor for gaps of 2**44 or more.

    References
    ----------
    Golomb 1966, "Run-length encodings"; index coding of pruned weights: Han, Mao & Dally 2016,
    "Deep Compression".
    """

    id: ClassVar[str] = "gaps"
    off_wire: ClassVar[str] = "it codes positions, not floats; it codes the mask of topk"
    codes_positions: ClassVar[bool] = True

    def encode(self, array: np.ndarray, shared: bytes = b"") -> Pieces:
        """Return the coded gaps."""
        if array.dtype.kind == "b":
            return _encode_mask(array.reshape(-1))
        if array.dtype.kind not in "iu" or array.ndim != 1:
            raise NotRepresentable(
                f"gaps: expected a mask or indices, got {array.dtype} {array.shape}"
            )
        if not (array[1:] > array[:-1]).all():
            raise NotRepresentable("gaps: the integers are not strictly increasing")
        positions = array.astype(np.uint64)
        first = positions[0]
        positions -= first
        return [_U64.pack(int(first)), *_encode(positions)]

    def encode_positions(self, positions: np.ndarray, size: int) -> Pieces:
        """Return what `encode` gives for a mask, from where it is true.

        Parameters
        ----------
        positions : numpy.ndarray
            Ascending (k,), 2k at most `size`.
        size : int
            Elements of the mask, at least one.
        """
        if 2 * positions.size > size:
            raise ValueError(f"gaps: {positions.size} of {size} positions are more than half")
        return [_COUNT.pack(0, positions.size), *_encode(positions)]

    def decode_positions(self, data: np.ndarray, size: int) -> np.ndarray | None:
        """Return the positions where a mask is true, ascending int64.

        None where the false positions are coded.

        Parameters
        ----------
        data : numpy.ndarray
            Flat uint8: what `encode` gave.
        size : int
            Elements of the mask, at least one.

        Raises
        ------
        CodecError
            If the bytes are damaged.
        """
        inverted, count, lengths, stream = _read_head(data, _COUNT)
        if inverted:
            return None
        if count > size:
            raise CodecError(f"gaps: expected at most {size} positions in a mask, got {count}")
        positions = np.empty(count, np.int64)
        _check_end(native.gaps_decode_positions(lengths, stream, size - 1, positions), stream)
        return positions

    def decode(self, data: np.ndarray, out: np.ndarray, shared: bytes = b"") -> None:
        """Fill `out`."""
        if out.dtype.kind == "b":
            inverted, count, lengths, stream = _read_head(data, _COUNT)
            if count > out.size:
                raise CodecError(f"gaps: expected {out.size} indices, got {count}")
            out[...] = inverted
            used = native.gaps_decode_mask(lengths, stream, count, not inverted, out.reshape(-1))
        elif out.dtype.kind in "iu" and out.ndim == 1:
            first, lengths, stream = _read_head(data, _U64)
            used = _decode_integers(lengths, stream, first, out)
        else:
            raise CodecError(f"gaps: expected a mask or indices, got {out.dtype} {out.shape}")
        _check_end(used, stream)


def _read_head(data: np.ndarray, head: struct.Struct) -> tuple[Any, ...]:
    """Return what the head holds, the code lengths of the classes, and the padded stream."""
    plain = data[head.size :].tobytes()
    used = plain[0] if plain else _CLASSES + 1
    start = 1 + (used + 1) // 2
    if len(plain) < start or used > _CLASSES:
        raise CodecError("gaps: the head or the table of classes is cut short")
    nibbles = np.frombuffer(plain[1:start], np.uint8)
    lengths = np.stack([nibbles & 15, nibbles >> 4], 1).reshape(-1)[:used]
    stream = np.frombuffer(plain[start:] + _PADDING, np.uint8)
    return *head.unpack(data[: head.size].tobytes()), lengths, stream


def _check_end(used: int, stream: np.ndarray) -> None:
    if used == _NO_CODE:
        raise CodecError("gaps: the code lengths make no prefix code")
    if used == _BEYOND:
        raise CodecError("gaps: an index lies beyond the array's range")
    if (used + 7) // 8 != stream.size - len(_PADDING):
        raise CodecError("gaps: the stream does not end where it should")


def _encode_mask(mask: np.ndarray) -> Pieces:
    if mask.view(np.uint8).max() > 1:
        raise NotRepresentable("gaps: a byte of the mask is neither 0 nor 1")
    inverted = int(np.count_nonzero(mask)) > mask.size // 2
    positions = np.flatnonzero(~mask if inverted else mask)
    return [_COUNT.pack(inverted, positions.size), *_encode(positions)]


def _encode(positions: np.ndarray) -> Pieces:
    """Return the code lengths and the gaps of ascending positions, integers of 64 bits."""
    lengths = np.empty(_CLASSES, np.uint8)
    bits = native.gaps_measure(positions, lengths)
    if bits == _BEYOND:
        raise NotRepresentable("gaps: a gap of 2**44 or more")
    used = int(lengths.nonzero()[0].max(initial=-1)) + 1
    out = np.empty(-(-bits // 8) + len(_PADDING), np.uint8)
    native.gaps_encode(positions, lengths, out)
    even = lengths[: used + used % 2]
    return [bytes([used]), even[::2] | even[1::2] << 4, out[: -len(_PADDING)]]


def _decode_integers(lengths: np.ndarray, stream: np.ndarray, first: int, out: np.ndarray) -> int:
    limits = np.iinfo(out.dtype)
    start = first - (1 << 64) if out.dtype.kind == "i" and first >> 63 else first
    if not limits.min <= start <= limits.max:
        raise CodecError(f"gaps: the first index is {start}, beyond {out.dtype}")
    positions = np.empty(out.size, np.uint64)
    used = native.gaps_decode_positions(lengths, stream, int(limits.max) - start, positions)
    if used >= 0:
        positions += np.uint64(first)
        out[...] = positions.astype(out.dtype)
    return used
