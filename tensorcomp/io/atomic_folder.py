"""Create folders atomically."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path, PurePath

from tensorcomp._formatting import shown
from tensorcomp._log import LOGGER
from tensorcomp.errors import CheckpointError
from tensorcomp.io.files import (
    PART,
    beside,
    held,
    is_still,
    is_temporary,
    lock,
    refuse_nul,
    refuse_unless_forced,
    sync,
    unlink_link,
    writing,
)

_OLD = "tensorcomp-old"


@contextlib.contextmanager
def atomic_folder(path: Path, names: Collection[PurePath], *, force: bool) -> Iterator[Path]:
    """Make a folder that appears under its name when the block ends.

    Until then it is ``.NAME.tensorcomp-part`` beside it; an error removes it, and so does the next
    run after one that was killed.

    Parameters
    ----------
    path : Path
    names : collection of PurePath
        The files that will be in it. A folder that holds any other is never replaced.
    force : bool

    Raises
    ------
    CheckpointError
        If `path` exists and `force` is not given, or holds other files, another run is writing it,
        or the system refuses.
    """
    refuse_nul(path)
    path = Path(os.path.realpath(path))  # which a loop of links does not stop
    _refuse_existing_folder(path, names, force=force)
    partial, replaced = beside(path, PART), beside(path, _OLD)
    with writing(path), _folder_alone(partial, path):
        if replaced.exists() and not path.exists():
            LOGGER.info("%s: put back, a run was killed before it had replaced it", path)
            replaced.rename(path)  # it was killed between the two renames below
        _remove_folder(replaced, ignore_errors=True)
        for leftover in partial.iterdir():
            LOGGER.info("%s: removed, a killed run had left it", leftover)
            _remove(leftover)
        try:
            yield partial
            _refuse_existing_folder(path, names, force=force)
            sync(partial)
            # What takes the temporary name is locked too, until it is removed.
            with held(path) if path.exists() else contextlib.nullcontext():
                old = partial if path.exists() and _exchanged(partial, path) else replaced
                if old is replaced:
                    if path.exists():
                        path.rename(replaced)
                    partial.rename(path)
                sync(path.parent)
                _remove_folder(old, ignore_errors=True)
        except BaseException:
            _remove_folder(partial, ignore_errors=True)
            if replaced.exists() and not path.exists():
                replaced.rename(path)
            raise


def _exchanged(one: Path, other: Path) -> bool:
    """Let two folders change names at one instant, where the system can."""
    import ctypes

    rename = getattr(ctypes.CDLL(None), "renameat2", None) if os.name != "nt" else None
    if rename is None:
        return False
    return bool(rename(-1, os.fsencode(one), -1, os.fsencode(other), 2) == 0)  # RENAME_EXCHANGE


def _refuse_existing_folder(path: Path, names: Collection[PurePath], *, force: bool) -> None:
    if path.exists() and not path.is_dir():
        raise CheckpointError(
            "exists already and is not a folder; give another by out=…", path=path
        )
    refuse_unless_forced(path, force=force)
    known = set(names)
    for found in sorted(path.rglob("*")) if path.exists() else ():
        relative = PurePath(found.relative_to(path))
        is_folder = found.is_dir() and not found.is_symlink()
        if not is_folder and relative not in known and not is_temporary(found):
            raise CheckpointError(
                f"holds {shown(str(relative))}, which the output does not, and would be "
                "lost; move it away, or give another folder by out=…",
                path=path,
            )


@contextlib.contextmanager
def _folder_alone(partial: Path, path: Path) -> Iterator[None]:
    """Lock a folder against other runs; create it if missing."""
    while True:
        unlink_link(partial)
        partial.mkdir(exist_ok=True)
        try:
            descriptor = os.open(partial, os.O_RDONLY)
        except PermissionError:  # Windows opens no folders
            yield
            return
        except FileNotFoundError:
            continue
        try:
            lock(descriptor, path)
            if is_still(descriptor, partial):
                yield
                return
        finally:
            os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        _remove_folder(path)
    else:
        path.unlink()


def _remove_folder(path: Path, *, ignore_errors: bool = False) -> None:
    import shutil  # and all compressors of archives, which a file needs no more than this

    shutil.rmtree(path, ignore_errors=ignore_errors)
