"""Small side information (tables, levels, sizes): a few byte strings as one compressed block."""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence

import zstandard

from tensorcomp.errors import CodecError

_U64 = struct.Struct("<Q")
_LEVEL = 3


class _Local(threading.local):
    """One compressor and decompressor a thread: making them costs more than using them."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True)
        self.decompressor = zstandard.ZstdDecompressor()


_local = _Local()


def pack_sections(sections: Sequence[bytes]) -> bytes:
    """Return the sections, each behind its uint64 length, compressed by zstd."""
    return compress(b"".join(_U64.pack(len(section)) + section for section in sections))


def compress(plain: bytes | memoryview) -> bytes:
    """Return what is there already as `pack_sections` lays sections out, compressed."""
    packed: bytes = _local.compressor.compress(plain)
    return packed


def unpack_sections(data: bytes, count: int, limit: int) -> list[bytes]:
    """Return `count` sections of at most `limit` bytes together.

    Raises
    ------
    CodecError
        If the block is damaged, larger than that, or holds another number of sections.
    """
    try:
        size = zstandard.frame_content_size(data)
        if not 0 <= size <= limit + 8 * count:
            raise CodecError(f"side information claims {size} bytes, at most {limit} can be there")
        plain = _local.decompressor.decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
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
