"""Files and folders that are whole or not there."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tensorcomp.checkpoints.access import writing
from tensorcomp.errors import CheckpointError


@contextlib.contextmanager
def atomic_file(path: Path, *, force: bool) -> Iterator[io.FileIO]:
    """Open a file that appears under `path`, complete and synced, when the block ends.

    Until then it is ``.NAME.tensorcomp-part`` in the same folder. An error removes it; what a
    killed run left behind is overwritten by the next one.

    Raises
    ------
    CheckpointError
        If `path` exists and `force` is not given, another run is writing it, or the system refuses.
    """
    refuse_existing(path, force=force)
    partial = path.with_name(f".{path.name}.tensorcomp-part")
    with writing(path), open(partial, "r+b", buffering=0, opener=_create) as file:
        _lock(file, path)
        try:
            file.truncate()
            yield file
            os.fsync(file.fileno())
            refuse_existing(path, force=force)
            os.replace(partial, path)  # noqa: PTH105 - the atomic one, by name
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise


def _create(path: str, flags: int) -> int:
    """Open for update, creating the file but not truncating it: it may be another run's."""
    return os.open(path, flags | os.O_CREAT, 0o666)


def refuse_existing(path: Path, *, force: bool) -> None:
    """Raise a CheckpointError if `path` exists and may not be replaced."""
    if path.is_dir():
        raise CheckpointError(f"{path}: is a folder; give another name by -o")
    if path.exists() and not force:
        raise CheckpointError(f"{path}: exists already; --force replaces it, -o names another")
    if not path.parent.is_dir():
        raise CheckpointError(f"{path}: there is no folder {path.parent}")


def _lock(file: BinaryIO, path: Path) -> None:
    """Keep two runs from writing one file; where the system has no such locks, go on without."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CheckpointError(f"{path}: another run is writing it") from None
    except OSError:
        return


@contextlib.contextmanager
def atomic_folder(path: Path, *, force: bool) -> Iterator[Path]:
    """Make a folder that appears under `path`, complete, when the block ends.

    Until then it is ``.NAME.tensorcomp-part`` beside it; an error removes it, and so does the next
    run after one that was killed.

    Raises
    ------
    CheckpointError
        If `path` exists and `force` is not given, or the system refuses.
    """
    path = path.resolve()
    if path.is_file() or (path.exists() and not force):
        raise CheckpointError(
            f"{path}: exists already; --force replaces a folder, -o names another"
        )
    partial = path.with_name(f".{path.name}.tensorcomp-part")
    replaced = path.with_name(f".{path.name}.tensorcomp-old")
    with writing(path):
        if replaced.exists() and not path.exists():
            replaced.rename(path)  # a run was killed between the two renames below
        for leftover in (partial, replaced):
            shutil.rmtree(leftover, ignore_errors=True)
        partial.mkdir()
        try:
            yield partial
            if path.exists():
                path.rename(replaced)
            partial.rename(path)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            if replaced.exists() and not path.exists():
                replaced.rename(path)
            raise
        shutil.rmtree(replaced, ignore_errors=True)
