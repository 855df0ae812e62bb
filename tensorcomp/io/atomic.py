"""Create files and folders atomically."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Collection, Iterator
from pathlib import Path, PurePath

from tensorcomp._log import LOGGER
from tensorcomp._names import shown
from tensorcomp.errors import CheckpointError
from tensorcomp.io.os_errors import writing

_PART, _OLD = "tensorcomp-part", "tensorcomp-old"


@contextlib.contextmanager
def atomic_file(path: Path, *, force: bool) -> Iterator[io.FileIO]:
    """Open a file that appears under its name, synced, when the block ends.

    Until then it is ``.NAME.tensorcomp-part`` in the same folder. An error removes it; what a
    killed run left behind is overwritten by the next one.

    Raises
    ------
    CheckpointError
        If `path` exists and `force` is not given, or is no regular file, another run is writing it,
        or the system refuses.
    """
    refuse_existing(path, force=force)
    partial = path.with_name(f".{path.name}.{_PART}")
    with writing(path), _file_alone(partial, path) as file:
        try:
            if os.fstat(file.fileno()).st_size:
                LOGGER.info("%s: removed, a killed run had left it", partial)
            file.truncate()
            yield file
            os.fsync(file.fileno())
            refuse_existing(path, force=force)
            os.replace(partial, path)  # noqa: PTH105 - the atomic one, by name
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise


@contextlib.contextmanager
def _file_alone(partial: Path, path: Path) -> Iterator[io.FileIO]:
    """Open or create a file for update that no other run has open."""
    while True:
        _unlink_link(partial)
        with open(partial, "r+b", buffering=0, opener=_create) as file:
            _lock(file.fileno(), path)
            if _is_still(file.fileno(), partial):  # else another run has ended, and it was its file
                yield file
                return


def _create(path: str, flags: int) -> int:
    """Open or create without truncating: the file may be another run's."""
    return os.open(path, flags | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)


def _unlink_link(partial: Path) -> None:
    """Remove a link in the place of a temporary file: it may lead anywhere."""
    if partial.is_symlink():
        partial.unlink(missing_ok=True)


def _is_still(descriptor: int, path: Path) -> bool:
    """Return whether an open file still has its name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def refuse_existing(path: Path, *, force: bool) -> None:
    """Require that a file may be created, or replaced, under this name."""
    if path.is_dir():
        raise CheckpointError("is a folder; give another name by out=…", path=path)
    if path.exists() and not path.is_file():
        raise CheckpointError("is a device or a pipe; give a regular file by out=…", path=path)
    if path.exists() and not force:
        raise CheckpointError(
            "exists already; force=True replaces it, out=… names another", path=path
        )
    if not path.parent.is_dir():
        raise CheckpointError(f"there is no folder {path.parent}", path=path)


def _lock(descriptor: int, path: Path) -> None:
    """Keep two runs from writing one output, where the system has locks."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CheckpointError("another run is writing it", path=path) from None
    except OSError as error:
        LOGGER.debug("%s: cannot be locked against other runs: %s", path, error)


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
    path = path.resolve()
    _refuse_existing_folder(path, names, force=force)
    partial = path.with_name(f".{path.name}.{_PART}")
    replaced = path.with_name(f".{path.name}.{_OLD}")
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
            if path.exists():
                path.rename(replaced)
            partial.rename(path)
        except BaseException:
            _remove_folder(partial, ignore_errors=True)
            if replaced.exists() and not path.exists():
                replaced.rename(path)
            raise
        _remove_folder(replaced, ignore_errors=True)


def _refuse_existing_folder(path: Path, names: Collection[PurePath], *, force: bool) -> None:
    if path.exists() and not path.is_dir():
        raise CheckpointError(
            "exists already and is not a folder; give another by out=…", path=path
        )
    if path.exists() and not force:
        raise CheckpointError(
            "exists already; force=True replaces it, out=… names another", path=path
        )
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


def is_temporary(path: Path) -> bool:
    """Return whether a file is a temporary one, such as a killed run leaves."""
    return path.name.endswith(f".{_PART}")


@contextlib.contextmanager
def _folder_alone(partial: Path, path: Path) -> Iterator[None]:
    """Lock a folder against other runs; create it if missing."""
    while True:
        _unlink_link(partial)
        partial.mkdir(exist_ok=True)
        try:
            descriptor = os.open(partial, os.O_RDONLY)
        except PermissionError:  # Windows opens no folders
            yield
            return
        except FileNotFoundError:
            continue
        try:
            _lock(descriptor, path)
            if _is_still(descriptor, partial):
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
