"""Turn errors of the operating system into one clear line."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tensorcomp._names import shown
from tensorcomp.errors import CheckpointError


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn an `OSError` or a `MemoryError` while reading into a `CheckpointError`."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"cannot be read: {_reason(error)}", path=path) from error
    except MemoryError as error:
        raise CheckpointError("not enough memory to read it", path=path) from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an `OSError` while writing into a `CheckpointError`."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"cannot be written: {_reason(error)}", path=path) from error


def file_size(path: Path) -> int:
    """Return the size in bytes of a regular file, links followed.

    Raises
    ------
    CheckpointError
        If nothing is there, or it is a folder, a device or a pipe, or may not be read.
    """
    if "\0" in str(path):
        raise CheckpointError("a path cannot hold a NUL character", path=shown(path))
    with reading(path):
        if path.is_symlink() and not path.exists():
            raise CheckpointError(
                "a link to a file that is not there; download it again", path=path
            )
        status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise CheckpointError("is a folder where a file was expected", path=path)
    if not stat.S_ISREG(status.st_mode):
        raise CheckpointError("is not a regular file; copy its data to one first", path=path)
    return status.st_size


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "there is no such file"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "permission denied; check who may access it"
    if error.errno == errno.ENOSPC:
        return "the disk is full; free some space or choose another folder"
    return error.strerror or os.strerror(error.errno) if error.errno else str(error)
