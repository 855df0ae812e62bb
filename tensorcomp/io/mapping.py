"""Map files into memory."""

from __future__ import annotations

import ctypes
import mmap
import weakref
from typing import BinaryIO

from tensorcomp._log import LOGGER


def map_file(file: BinaryIO, *, private: bool = False) -> memoryview | None:
    """Map a whole file for reading; return None where its file system refuses.

    A private mapping can be changed, and leaves the file as it is: pages are copied when they are
    first written to.
    """
    try:
        return _map(file, private=private)
    except (OSError, ValueError) as error:
        LOGGER.debug("%s: read, since it cannot be mapped: %s", file.name, error)
        return None


def _map(file: BinaryIO, *, private: bool) -> memoryview:
    """Map a whole file; the mapping takes no descriptor.

    `mmap.mmap` keeps a duplicate of the descriptor, so that a process with a limit of 64 could read
    no model of more shards. It is unmapped with the last view.

    Raises
    ------
    OSError, ValueError
        If the system refuses, or the file is empty.
    """
    access = mmap.ACCESS_COPY if private else mmap.ACCESS_READ
    held = mmap.mmap(file.fileno(), 0, access=access)
    if not hasattr(mmap, "MAP_SHARED"):  # on Windows, where descriptors are not so few
        return memoryview(held)
    size, libc = len(held), ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(3 * [ctypes.c_int]), ctypes.c_long)
    libc.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if private else 0)
    flags = mmap.MAP_PRIVATE if private else mmap.MAP_SHARED
    address = libc.mmap(None, size, protection, flags, file.fileno(), 0)
    if address in (None, ctypes.c_void_p(-1).value):
        return memoryview(held)
    held.close()
    pages = (ctypes.c_uint8 * size).from_address(address)
    weakref.finalize(pages, libc.munmap, address, size).atexit = False
    return memoryview(pages) if private else memoryview(pages).toreadonly()
