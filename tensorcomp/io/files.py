"""Create files and folders atomically; explain errors of the system."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tensorcomp._formatting import shown
from tensorcomp._log import LOGGER
from tensorcomp.errors import CheckpointError, MissingFileError, TensorcompError
from tensorcomp.io.locations import is_remote
from tensorcomp.progress import Progress


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of the system while reading into a `CheckpointError`."""
    try:
        yield
    except TensorcompError:
        raise
    except FileNotFoundError as error:
        raise MissingFileError(f"cannot be read: {_reason(error)}", path=path) from error
    except OSError as error:
        raise CheckpointError(f"cannot be read: {_reason(error)}", path=path) from error
    except MemoryError as error:
        raise CheckpointError("not enough memory to read it", path=path) from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an `OSError` while writing into a `CheckpointError`."""
    try:
        yield
    except TensorcompError:
        raise
    except OSError as error:
        raise CheckpointError(f"cannot be written: {_reason(error)}", path=path) from error


def refuse_nul(path: Path) -> None:
    """Require that a path holds no NUL character, which no system takes."""
    if "\0" in str(path):
        raise CheckpointError("a path cannot hold a NUL character", path=shown(path))


def file_size(path: Path) -> int:
    """Return the size in bytes of a regular file, links followed.

    Raises `CheckpointError` if nothing is there, or it is a folder, a device or a pipe, or may
    not be read.
    """
    refuse_nul(path)
    with reading(path):
        if path.is_symlink() and not path.exists():
            raise MissingFileError(
                "a link to a file that is not there; download it again", path=path
            )
        status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise CheckpointError("is a folder where a file was expected", path=path)
    if not stat.S_ISREG(status.st_mode):
        raise CheckpointError("is not a regular file; copy its data to one first", path=path)
    return status.st_size


_REASONS = {
    errno.ENOENT: "there is no such file",
    errno.EACCES: "permission denied; check who may access it",
    errno.EPERM: "permission denied; check who may access it",
    errno.ENOSPC: "the disk is full; free some space or choose another folder",
}


def _reason(error: OSError) -> str:
    if error.errno is None:
        return str(error)
    return _REASONS.get(error.errno) or error.strerror or os.strerror(error.errno)


PART = "tensorcomp-part"  # ends the names of temporary files and folders
UNFINISHED = f".{PART}"  # marks a folder of a store that is being written
_MAX_NAME = 200  # bytes of a name that a temporary one holds; file systems take 255


def beside(path: Path, ending: str) -> Path:
    """Return the path of a temporary file; a digest stands for a long name."""
    name = path.name
    if len(os.fsencode(name)) > _MAX_NAME:
        import hashlib  # which takes time, and hardly any name is so long

        name = hashlib.sha256(os.fsencode(name)).hexdigest()[:32]
    return path.with_name(f".{name}.{ending}")


def free_bytes(folder: Path, outputs: Iterable[Path] = ()) -> int:
    """Return the free bytes of a disk, with those of leftovers of killed runs."""
    import shutil

    left = (
        partial.stat().st_size
        for partial in (beside(path, PART) for path in outputs)
        if partial.is_file()
    )
    return shutil.disk_usage(folder).free + sum(left)


def sync(*paths: Path) -> None:
    """Write files, and the names in folders, to the disk where possible."""
    for path in paths if os.name != "nt" else ():  # which opens no folders, nor files to sync
        with (
            writing(path),
            contextlib.suppress(PermissionError),  # a folder to write in need not be readable
            _descriptor(path) as descriptor,
        ):
            _sync(descriptor, path)


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Lock an existing file, so that one run at a time changes it."""
    if os.name == "nt":  # has no such locks, and deletes no open files
        yield
        return
    with reading(path), _descriptor(path) as descriptor:
        lock(descriptor, path)
        if not is_still(descriptor, path):
            raise CheckpointError("another run has removed it", path=path)
        yield


@contextlib.contextmanager
def _descriptor(path: Path) -> Iterator[int]:
    """Open a file or folder to lock or sync it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def atomic_file(
    path: Path, *, force: bool, nbytes: int | None = None, progress: Progress | None = None
) -> Iterator[io.BufferedRandom]:
    """Open a file that appears under its name, synced, when the block ends.

    Until then it is ``.NAME.tensorcomp-part`` in the same folder. An error removes it; what a
    killed run left behind is overwritten by the next one. In an object store, it is an upload.

    Parameters
    ----------
    path : Path
    force : bool
        Replace an existing file.
    nbytes : int, optional
        About how many bytes are written, if in one go; what may be a stream then is one. It has
        `write`, `seek`, `read` and `truncate` alone, and may raise `PartIsSent`.
    progress : Progress, optional
        Of what is uploaded in the end.

    Raises
    ------
    CheckpointError
        If `path` exists and `force` is not given, or is no regular file, another run is writing it,
        or the system refuses.
    """
    if is_remote(path):
        from tensorcomp.io.store_output import object_file

        with object_file(path, force=force, nbytes=nbytes, progress=progress) as upload:
            yield upload
        return
    refuse_existing(path, force=force)
    partial = beside(path, PART)
    with writing(path), _file_alone(partial, path) as file:
        try:
            if os.fstat(file.fileno()).st_size:
                LOGGER.info("%s: removed, a killed run had left it", partial)
            file.truncate()
            yield file
            file.flush()
            _sync(file.fileno(), path)
            refuse_existing(path, force=force)
            os.replace(partial, path)  # noqa: PTH105 - the atomic one, by name
            sync(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise


def _sync(descriptor: int, path: Path) -> None:
    """Bring a file to the disk, where its file system can be asked to."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP):
            raise
        LOGGER.debug("%s: cannot be synced: %s", path, error)


@contextlib.contextmanager
def _file_alone(partial: Path, path: Path) -> Iterator[io.BufferedRandom]:
    """Open or create a file for update that no other run has open."""
    while True:
        unlink_link(partial)
        # Buffered, since a raw file takes a part of what is written where the disk is all but full.
        with open(partial, "r+b", opener=_create) as file:
            lock(file.fileno(), path)
            if is_still(file.fileno(), partial):  # else another run has ended, and it was its file
                yield file
                return


def _create(path: str, flags: int) -> int:
    """Open or create without truncating: the file may be another run's."""
    return os.open(path, flags | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)


def unlink_link(partial: Path) -> None:
    """Remove a link in the place of a temporary file: it may lead anywhere."""
    if partial.is_symlink():
        partial.unlink(missing_ok=True)


def is_still(descriptor: int, path: Path) -> bool:
    """Return whether an open file still has its name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def refuse_existing(path: Path, *, force: bool) -> None:
    """Require that a file may be created, or replaced, under this name."""
    refuse_nul(path)
    if is_remote(path):
        from tensorcomp.io.store_output import refuse_existing_object

        refuse_existing_object(path, force=force)
        return
    if path.is_dir():
        raise CheckpointError("is a folder; give another name by out=…", path=path)
    if path.exists() and not path.is_file():
        raise CheckpointError("is a device or a pipe; give a regular file by out=…", path=path)
    refuse_unless_forced(path, force=force)
    if not path.parent.is_dir():
        raise CheckpointError(f"there is no folder {path.parent}", path=path)


def refuse_unless_forced(path: Path, *, force: bool) -> None:
    """Require that nothing is there, or may be replaced."""
    if path.exists() and not force:
        raise CheckpointError(
            "exists already; force=True replaces it, out=… names another", path=path
        )


def lock(descriptor: int, path: Path) -> None:
    """Keep two runs from writing one output, where the system has locks."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise CheckpointError("another run is writing it", path=path) from error
    except OSError as error:
        LOGGER.debug("%s: cannot be locked against other runs: %s", path, error)


def link_file(file: Path, link: Path) -> None:
    """Give a file a further name; copy it where the system has no hard links."""
    try:
        os.link(file, link)
    except OSError:
        import shutil

        with writing(link):
            shutil.copyfile(file, link)


def is_temporary(path: Path) -> bool:
    """Return whether a file is a temporary one, such as a killed run leaves."""
    return path.name.endswith(f".{PART}")
