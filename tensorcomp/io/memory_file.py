"""Write a file in memory that becomes a bytes object without a copy."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tensorcomp.io.memory_pages import ask_for_large_pages

_FEW = 1 << 14  # bytes that are copied sooner than the lock changes hands
# Functions of our own: those of `ctypes.pythonapi` are shared, and other libraries set their types.
_new = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ssize_t)(
    ("PyBytes_FromStringAndSize", ctypes.pythonapi)
)
_resize = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_ssize_t)(
    ("_PyBytes_Resize", ctypes.pythonapi)
)
_let_go = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("Py_DecRef", ctypes.pythonapi))
_HEAD = bytes.__basicsize__ - 1  # of a bytes object, in front of its bytes


class MemoryFile:
    """Binary file in memory: `write`, `seek` and `read`, then `to_bytes`.

    CPython lets a bytes object be filled before anyone else has seen it (C API,
    ``PyBytes_FromStringAndSize``). Compared with ``io.BytesIO`` that saves growing step by step,
    and lets the system serve the memory in large pages: touching 4 KiB at a time takes longer than
    compressing does.

    Parameters
    ----------
    capacity : int
        Bytes that are likely to be enough. Address space only: what is not written takes no memory.
    """

    def __init__(self, capacity: int) -> None:
        self._object = ctypes.c_void_p(None)
        self._end = self._position = 0
        self._allocate(max(capacity, 1))

    def _allocate(self, capacity: int) -> None:
        """Make room, keeping what is there."""
        if self._object.value is None:
            self._object.value = _new(None, capacity)
        else:
            _resize(ctypes.byref(self._object), capacity)
        assert self._object.value is not None  # else Python has raised MemoryError
        address = self._object.value + _HEAD
        ask_for_large_pages(address, capacity)
        buffer = (ctypes.c_uint8 * capacity).from_address(address)
        self._bytes = np.frombuffer(buffer, np.uint8)
        self._view = memoryview(buffer).cast("B")

    def write(self, data: Any) -> int:
        """Write bytes at the position; return how many."""
        source = memoryview(data).cast("B")
        if not source.nbytes:
            return 0
        stop = self._position + source.nbytes
        if stop > self._bytes.size:
            self._allocate(stop + stop // 8)
        if self._position > self._end:
            self._bytes[self._end : self._position] = 0
        if source.nbytes < _FEW:
            self._view[self._position : stop] = source
        else:  # without the interpreter's lock
            self._bytes[self._position : stop] = np.frombuffer(source, np.uint8)
        self._position = stop
        self._end = max(self._end, stop)
        return source.nbytes

    def seek(self, position: int) -> int:
        """Move to a position, maybe behind the end; return it."""
        self._position = position
        return position

    def truncate(self, size: int) -> int:
        """Cut the content after so many bytes; return them. It is never made longer."""
        self._end = min(self._end, size)
        return size

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes from the position."""
        data = self._bytes[self._position : min(self._position + size, self._end)].tobytes()
        self._position += len(data)
        return data

    def to_bytes(self) -> bytes:
        """Return the whole content; the file must not be used any more."""
        self._bytes = np.empty(0, np.uint8)
        self._view = memoryview(b"")
        _resize(ctypes.byref(self._object), self._end)
        content: bytes = ctypes.cast(self._object, ctypes.py_object).value
        return content

    def __del__(self) -> None:
        """Give back the file's own reference to the bytes object."""
        if self._object.value is not None:
            _let_go(self._object)
