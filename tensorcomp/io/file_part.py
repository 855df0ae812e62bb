"""Read a part of a file like a file that is open only while it is read."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any


class FilePart(io.RawIOBase):
    """Part of a file, which takes no descriptor between reads.

    Parameters
    ----------
    path : Path
    start, stop : int
        First byte, and the one behind the last; by default the whole file.
    """

    def __init__(self, path: Path, start: int = 0, stop: int | None = None) -> None:
        self._path = path
        self._start = start
        self._size = (path.stat().st_size if stop is None else stop) - start
        self._position = 0

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer from the position; return how many bytes there were."""
        left = max(self._size - self._position, 0)
        with self._path.open("rb", buffering=0) as file:
            file.seek(self._start + self._position)
            count = file.readinto(memoryview(buffer)[:left]) or 0
        self._position += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move relative to the start, the position or the end; return where."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise OSError(f"expected a position in the file, got {base + offset}")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True
