"""Side information of entropy coders: tables, levels and sizes in one block before bit streams.

The block stands behind its length (uint64). Streams follow without gaps, each rounded up to whole
bytes, and `PADDING` zero bytes, because a decoder loads whole words.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence

import numpy as np

from tensorcomp._zstd_frames import ZstdError, decompress
from tensorcomp._zstd_frames import compress as compress_frame
from tensorcomp.codecs.bit_views import as_words
from tensorcomp.errors import CodecError

_U64 = struct.Struct("<Q")
PADDING = 8
_LEVEL = 3


def pack_side_info(sections: Sequence[bytes]) -> bytes:
    """Return the sections, each behind its uint64 length, compressed by zstd."""
    return compress(b"".join(_U64.pack(len(section)) + section for section in sections))


def compress(plain: bytes | memoryview) -> bytes:
    """Return what is there already as `pack_side_info` lays sections out, compressed."""
    return compress_frame(plain, _LEVEL)


def unpack_side_info(data: bytes, count: int, limit: int) -> list[bytes]:
    """Return `count` sections of at most `limit` bytes together.

    Raises
    ------
    CodecError
        If the block is damaged, larger than that, or holds another number of sections.
    """
    try:
        plain = decompress(data, limit + 8 * count)
    except ZstdError as error:
        raise CodecError(f"side information is damaged: {error}") from error
    sections = []
    position = 0
    while position < len(plain):
        if len(plain) - position < 8:
            raise CodecError("side information is cut short")
        stop = position + 8 + _U64.unpack_from(plain, position)[0]
        if stop > len(plain):
            raise CodecError("side information is cut short")
        sections.append(plain[position + 8 : stop])
        position = stop
    if len(sections) != count:
        raise CodecError(f"side information has {len(sections)} sections instead of {count}")
    return sections


def split_side(data: np.ndarray, padding: int = PADDING) -> tuple[bytes, np.ndarray]:
    """Return the side information, and what follows it, of so many bytes at least.

    Raises
    ------
    CodecError
        If the bytes are cut short.
    """
    if data.size < _U64.size + padding:
        raise CodecError("the coded bytes are cut short")
    length = _U64.unpack(data[: _U64.size].tobytes())[0]
    if length > data.size - _U64.size - padding:
        raise CodecError(f"side information of {length} bytes in {data.size}")
    stop = _U64.size + length
    return data[_U64.size : stop].tobytes(), data[stop:]


def stream_starts(bits: list[int], size: int) -> list[int]:
    """Return the byte where each stream of so many bits starts.

    Raises
    ------
    CodecError
        If streams and padding do not fill `size` bytes.
    """
    if max(bits) > 8 * size:
        raise CodecError(f"a stream claims {max(bits)} bits of {8 * size}")
    lengths = [(b + 7) // 8 for b in bits]
    if sum(lengths) + PADDING != size:
        raise CodecError(f"streams of {sum(lengths)} bytes in {size - PADDING}")
    return list(itertools.accumulate(lengths[:-1], initial=0))


def symbols_of(array: np.ndarray) -> np.ndarray:
    """Return a flat array of uint8 or uint16 symbols with the array's bits.

    Elements wider than 16 bits are cut into their bytes.
    """
    return as_words(array).reshape(-1) if array.itemsize <= 2 else array.reshape(-1).view(np.uint8)


def symbol_bits(symbols: np.ndarray) -> int:
    """Return the bits that every symbol fits in; 8 for those of one byte."""
    return 8 if symbols.itemsize == 1 else max(int(symbols.max()).bit_length(), 1)


def pack_symbols(symbols: np.ndarray) -> bytes:
    """Return the ascending symbols as a bit map."""
    present = np.zeros(int(symbols[-1]) + 1, np.uint8)
    present[symbols] = 1
    return np.packbits(present, bitorder="little").tobytes()


def unpack_symbols(data: bytes, itemsize: int) -> np.ndarray:
    """Read what `pack_symbols` wrote for symbols of so many bytes.

    Raises
    ------
    CodecError
        If there is none, or one is too large.
    """
    present = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    symbols = present.nonzero()[0]
    if symbols.size == 0 or symbols[-1] >= 1 << (8 * itemsize):
        raise CodecError(f"the alphabet is empty or wider than {8 * itemsize} bits")
    return symbols.astype(np.uint16)
