"""Small side information (tables, levels, sizes): a few byte strings as one compressed block."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tensorcomp._zstd_frames import ZstdError, decompress
from tensorcomp._zstd_frames import compress as compress_frame
from tensorcomp.errors import CodecError

_U64 = struct.Struct("<Q")
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
