"""Side information of entropy coders, in a block before the bit streams.

It is tables, levels and sizes.

The block stands behind its length (uint64). Streams follow without gaps, each rounded up to whole
bytes, and `PADDING` zero bytes, because a decoder loads whole words. What reads them raises
`CodecError` where they are damaged, cut short or too large.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence

import numpy as np

from tensorcomp._zstd_frames import ZstdError, compress, decompress
from tensorcomp.codecs.bit_views import as_words
from tensorcomp.codecs.tree import pack_sections, unpack_sections
from tensorcomp.errors import CodecError

_U64 = struct.Struct("<Q")
PADDING = 8
LEVEL = 3  # of zstd


def pack_side_info(sections: Sequence[bytes]) -> bytes:
    """Return the sections, packed and compressed by zstd."""
    return compress(pack_sections(sections), LEVEL)


def unpack_side_info(data: bytes, count: int, limit: int) -> list[bytes]:
    """Return `count` sections of at most `limit` bytes together."""
    try:
        plain = decompress(data, limit + 8 * count)
    except ZstdError as error:
        raise CodecError(f"side information is damaged: {error}") from error
    return unpack_sections(plain, count, "side information")


def split_side(data: np.ndarray, padding: int = PADDING) -> tuple[bytes, np.ndarray]:
    """Return the side information and what follows it.

    At least `padding` bytes follow.
    """
    if data.size < _U64.size + padding:
        raise CodecError("the coded bytes are cut short")
    length = _U64.unpack(data[: _U64.size].tobytes())[0]
    if length > data.size - _U64.size - padding:
        raise CodecError(
            f"expected {length} bytes of side information, got {data.size - _U64.size - padding}"
        )
    stop = _U64.size + length
    return data[_U64.size : stop].tobytes(), data[stop:]


def stream_starts(bits: list[int], size: int) -> list[int]:
    """Return the byte where each stream starts, from their lengths in bits."""
    if max(bits) > 8 * size:
        raise CodecError(f"expected streams of at most {8 * size} bits, got {max(bits)}")
    lengths = [(b + 7) // 8 for b in bits]
    if sum(lengths) + PADDING != size:
        raise CodecError(f"expected streams of {sum(lengths)} bytes, got {size - PADDING}")
    return list(itertools.accumulate(lengths[:-1], initial=0))


def symbols_of(array: np.ndarray) -> np.ndarray:
    """Return a flat array of uint8 or uint16 symbols with the array's bits.

    Elements wider than 16 bits are cut into their bytes.
    """
    return as_words(array).reshape(-1) if array.itemsize <= 2 else array.reshape(-1).view(np.uint8)


def unpack_symbols(data: bytes, itemsize: int) -> np.ndarray:
    """Return the ascending symbols, of `itemsize` bytes, of a bit map."""
    present = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    symbols = present.nonzero()[0]
    if symbols.size == 0 or symbols[-1] >= 1 << (8 * itemsize):
        raise CodecError(f"the alphabet is empty or wider than {8 * itemsize} bits")
    return symbols.astype(np.uint16)
