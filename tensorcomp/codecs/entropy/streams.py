"""What the entropy coders' payloads share: side information, then bit streams, then padding.

The side information stands behind its length (uint64). Streams follow without gaps, each rounded up
to whole bytes, and `PADDING` zero bytes, because a decoder loads whole words.
"""

from __future__ import annotations

import itertools
import struct

import numpy as np

from tensorcomp.errors import CodecError

PADDING = 8
_U64 = struct.Struct("<Q")


def split_side(data: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Return the side information, and the streams with their padding.

    Raises
    ------
    CodecError
        If the bytes are cut short.
    """
    if data.size < _U64.size + PADDING:
        raise CodecError("the coded bytes are cut short")
    length = _U64.unpack(data[: _U64.size].tobytes())[0]
    if length > data.size - _U64.size - PADDING:
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
