"""Write files of object stores: as a stream, or by way of a local file."""

from __future__ import annotations

import contextlib
import errno
import io
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from tensorcomp._formatting import bytes_text
from tensorcomp.errors import CheckpointError, MissingFileError
from tensorcomp.io.locations import RemotePath
from tensorcomp.io.s3_upload import EXISTS, S3Upload
from tensorcomp.io.store_errors import repeated
from tensorcomp.progress import Progress

_BLOCK = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def refuse_existing_object(path: Path, *, force: bool) -> None:
    """Require that an object may be created, or replaced, under this name."""
    kind = kind_of(path)
    if kind == "directory":
        raise CheckpointError("is a folder; give another name by out=…", path=path)
    if kind is not None and not force:
        raise CheckpointError(EXISTS, path=path)


def kind_of(path: Path) -> str | None:
    """Return the kind of what is at a place that is to be written, if any.

    Raises
    ------
    CheckpointError
        If its store cannot be written, lacks the bucket, or refuses.
    """
    remote = cast("RemotePath", path)
    if remote.is_web:
        raise CheckpointError("can be read only; give another place by out=…", path=path)
    try:
        return str(remote.info()["type"])
    except MissingFileError as error:
        if "no such bucket" in error.message:
            raise
        return None


@contextlib.contextmanager
def object_file(
    path: Path, *, force: bool, nbytes: int | None, progress: Progress | None
) -> Iterator[io.BufferedRandom]:
    """Open a file of a store that appears, whole, when the block ends.

    Parameters
    ----------
    path : Path
    force : bool
        Replace an existing one.
    nbytes : int or None
        About how many bytes are written, if in one go: to S3, these become a stream. Else they go
        to a local file, which is uploaded in the end.
    progress : Progress, optional
        Of an upload in the end.

    Raises
    ------
    CheckpointError
        If there is one and `force` is not given, or the store refuses, or the local disk is full.
    """
    refuse_existing_object(path, force=force)
    with contextlib.ExitStack() as stack:
        if nbytes is None or not _is_s3(path):
            file = stack.enter_context(_spooled(path))
            yield file
        else:
            output = _Streamed(path, stack, stack.enter_context(S3Upload(path, nbytes)))
            yield cast("io.BufferedRandom", output)
            if isinstance(output.file, S3Upload):
                output.file.complete(force=force)
                return
            file = output.file
        file.flush()
        put_file(Path(file.name), path, force=force, progress=progress)


class _Streamed:
    """Output that is an upload, until it begins again after parts have gone."""

    def __init__(self, path: Path, stack: contextlib.ExitStack, upload: S3Upload) -> None:
        self._path, self._stack = path, stack
        self.file: S3Upload | io.BufferedRandom = upload

    def write(self, data: Any) -> int:
        """Write all bytes at the position; return how many."""
        return self.file.write(data)

    def seek(self, position: int) -> int:
        """Move to a position, maybe behind the end."""
        return self.file.seek(position)

    def read(self, size: int) -> bytes:
        """Return at most so many bytes."""
        return self.file.read(size)

    def truncate(self, size: int) -> int:
        """Cut the file; one of which parts have gone goes on as a local file."""
        if isinstance(self.file, S3Upload) and self.file.has_sent:
            self.file.abort()
            self.file = self._stack.enter_context(_spooled(self._path))
        return self.file.truncate(size)


@contextlib.contextmanager
def _spooled(path: Path) -> Iterator[io.BufferedRandom]:
    """Open a temporary file."""
    with spool_folder(path) as folder, (folder / "output").open("w+b") as file:
        yield file


@contextlib.contextmanager
def spool_folder(path: Path) -> Iterator[Path]:
    """Make a local folder for what is uploaded to a place in the end.

    Raises `CheckpointError` that says where it is if its disk is full.
    """
    with tempfile.TemporaryDirectory(prefix="tensorcomp-") as folder:
        try:
            yield Path(folder)
        except (OSError, CheckpointError) as error:
            reason = error if isinstance(error, OSError) else error.__cause__
            if getattr(reason, "errno", None) not in _FULL:
                raise
            written = sum(file.stat().st_size for file in Path(folder).rglob("*"))
            raise CheckpointError(
                f"the disk is full: {tempfile.gettempdir()} has "
                f"{bytes_text(shutil.disk_usage(folder).free)} free, and what is uploaded is "
                f"written there first, {bytes_text(written)} so far; set TMPDIR to a folder with "
                "room for all of it",
                path=path,
            ) from error


def put_file(local: Path, path: Path, *, force: bool, progress: Progress | None = None) -> None:
    """Upload a file, which appears whole.

    Raises
    ------
    CheckpointError
        If there is one and `force` is not given, or the store refuses.
    """
    nbytes = local.stat().st_size
    watch = progress or Progress()
    watch.begin(1, nbytes)
    if _is_s3(path):
        with S3Upload(path, nbytes) as upload, local.open("rb") as file:
            while block := file.read(_BLOCK):
                upload.write(block)
                watch.advance(path.name, len(block))
            upload.complete(force=force)
        return
    from fsspec.callbacks import Callback

    class Shown(Callback):  # type: ignore[misc]  # fsspec has no types
        def relative_update(self, inc: int = 1) -> None:
            watch.advance(path.name, inc)

    refuse_existing_object(path, force=force)
    fs: Any = cast("RemotePath", path).fs
    place = cast("RemotePath", path).path
    repeated(str(path), lambda: fs.put_file(str(local), place, callback=Shown()), doing="written")


def _is_s3(path: Path) -> bool:
    return hasattr(cast("RemotePath", path).fs, "_call_s3")
