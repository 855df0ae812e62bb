"""Side information of entropy coders: tables, levels and sizes in one block before bit streams.

The block stands behind its length (uint64). Streams follow without gaps, each rounded up to whole
bytes, and `PADDING` zero bytes, because a decoder loads whole words.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence

import numpy as np

from tensorcomp._zstd_frames import ZstdError, compress, decompress
from tensorcomp.codecs.bit_views import as_words
from tensorcomp.errors import CodecError

_U64 = struct.Struct("<Q")
PADDING = 8
LEVEL = 3  # of zstd


def pack_side_info(sections: Sequence[bytes]) -> bytes:
    """Return the sections, packed and compressed by zstd."""
    return compress(pack_sections(sections), LEVEL)


def pack_sections(sections: Sequence[bytes]) -> bytes:
    """Return the sections, each behind its uint64 length."""
    return b"".join(_U64.pack(len(section)) + section for section in sections)


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
    return unpack_sections(plain, count, "side information")


def unpack_sections(data: bytes, count: int, what: str) -> list[bytes]:
    """Read what `pack_sections` wrote; `what` names it in messages.

    Raises
    ------
    CodecError
        If the data are cut short, or hold another number of sections.
    """
    sections = []
    stop = 0
    while stop < len(data):
        start = stop + _U64.size
        stop = start + int.from_bytes(data[stop:start], "little")
        if stop > len(data):
            raise CodecError(f"{what} is cut short")
        sections.append(data[start:stop])
    if len(sections) != count:
        raise CodecError(f"{what}: expected {count} sections, got {len(sections)}")
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


def unpack_symbols(data: bytes, itemsize: int) -> np.ndarray:
    """Return the ascending symbols, of so many bytes, that a bit map holds.

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
