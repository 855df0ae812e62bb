"""Allocate memory in large pages or in a file; as usual but on Linux."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
import tempfile
from collections.abc import Callable

import numpy as np

_LARGE_PAGE = 1 << 21
_IN_FILE = 1 << 26  # bytes of an array that does not belong in memory
_DONT_NEED = 4  # MADV_DONTNEED
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, of Linux 5.14 and later


@functools.cache
def _madvise() -> Callable[..., int] | None:
    if not hasattr(mmap, "MADV_HUGEPAGE"):  # Linux only
        return None
    advise = ctypes.CDLL(None).madvise
    advise.argtypes, advise.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int), ctypes.c_int
    return advise


def ask_for_large_pages(address: int, size: int) -> None:
    """Advise the system to serve whole large pages within a range; it need not."""
    if size >= _LARGE_PAGE and _madvise() is not None:
        _advise(address, size, mmap.MADV_HUGEPAGE)


def empty_in_large_pages(size: int) -> np.ndarray:
    """Allocate unset bytes, aligned to large pages."""
    if size < _LARGE_PAGE:
        return np.empty(size, np.uint8)
    whole = -(-size // _LARGE_PAGE) * _LARGE_PAGE
    room = np.empty(whole + _LARGE_PAGE, np.uint8)  # addresses: what is not touched is no memory
    start = -room.ctypes.data % _LARGE_PAGE
    ask_for_large_pages(room.ctypes.data + start, whole)
    return room[start : start + size]


def scratch(size: int, dtype: np.dtype) -> np.ndarray:
    """Allocate unset elements; of a large array in a temporary file.

    The system takes such pages back when it needs them. Where no file of the size can be made, the
    array is in memory.
    """
    nbytes = size * dtype.itemsize
    if nbytes >= _IN_FILE and hasattr(os, "posix_fallocate"):
        with contextlib.suppress(OSError), tempfile.TemporaryFile() as file:
            os.posix_fallocate(file.fileno(), 0, nbytes)  # a full disk is an error now, not later
            return np.frombuffer(mmap.mmap(file.fileno(), nbytes), dtype)
    return np.empty(size, dtype)


def populate(array: np.ndarray) -> None:
    """Touch all whole pages of a contiguous array at once.

    Best by one thread at a time: where two touch fresh memory, each page can take several times as
    long.
    """
    _advise(array.ctypes.data, array.nbytes, _POPULATE_WRITE)


def release(array: np.ndarray) -> None:
    """Let go of the pages of an array that is a view of a mapped file.

    They are read again when they are needed. Of any other memory, the content would be lost.
    """
    _advise(array.ctypes.data, array.nbytes, _DONT_NEED)


def _advise(address: int, size: int, advice: int) -> None:
    advise = _madvise()
    begin = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (address + size) // mmap.PAGESIZE * mmap.PAGESIZE
    if advise is not None and end > begin:
        advise(begin, end - begin, advice)
