"""Compress and decompress Zstandard frames."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Buffer

ZstdError = zstd.ZstdError
VERSION: tuple[int, int, int] = zstd.zstd_version_info  # of the library, on which bytes depend

_MAGIC = b"\x28\xb5\x2f\xfd"  # of a frame that holds something
_MIN_DICTIONARY = 8  # bytes; below, zstd takes none


class _Local(threading.local):
    """Compressors of a thread, since making one takes longer than using it."""

    def __init__(self) -> None:
        self.compressors: dict[tuple[int, bool], zstd.ZstdCompressor] = {}


_local = _Local()


def compress(plain: Buffer, level: int, *, checksum: bool = False, like: bytes = b"") -> bytes:
    """Return one frame that states the size of its content.

    Parameters
    ----------
    plain : buffer
    level : int
        1 (fast) to 22 (small).
    checksum : bool
        Whether the content's checksum is behind it.
    like : bytes
        A similar text that the reader also has.
    """
    compressor = None if like else _local.compressors.get((level, checksum))
    if compressor is None:
        options: dict[int, int] = {
            zstd.CompressionParameter.compression_level: level,
            zstd.CompressionParameter.checksum_flag: int(checksum),
        }
        compressor = zstd.ZstdCompressor(options=options, zstd_dict=_dictionary(like))
        if not like:
            _local.compressors[level, checksum] = compressor
    return compressor.compress(plain, zstd.ZstdCompressor.FLUSH_FRAME)


def decompress(frame: Buffer, limit: int, *, like: bytes = b"") -> bytes:
    """Return the content of a frame, after checking the size that it states.

    Raises
    ------
    ZstdError
        If it is damaged, states no size or one above `limit`, or if anything is behind it.
    """
    if bytes(memoryview(frame)[: len(_MAGIC)]) != _MAGIC:
        raise ZstdError("it is not a zstd frame")
    size = zstd.get_frame_info(frame).decompressed_size
    if size is None:
        raise ZstdError("it does not say the size of its content")
    if size > limit:
        raise ZstdError(f"it claims {size} bytes, at most {limit} can be there")
    decompressor = zstd.ZstdDecompressor(zstd_dict=_dictionary(like))
    plain = decompressor.decompress(frame, size + 1)
    if len(plain) != size or not decompressor.eof:
        raise ZstdError(f"it lacks some of the {size} bytes that it claims")
    if decompressor.unused_data:
        raise ZstdError("there are bytes behind its end")
    return plain


def _dictionary(content: bytes) -> zstd.ZstdDict | None:
    return zstd.ZstdDict(content, is_raw=True) if len(content) >= _MIN_DICTIONARY else None
