"""Copy files of object stores to temporary local ones."""

from __future__ import annotations

import contextlib
import errno
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tensorcomp._formatting import bytes_text
from tensorcomp.errors import CheckpointError, TensorcompError
from tensorcomp.io.locations import is_remote
from tensorcomp.io.remote_file import RemoteFile


@contextlib.contextmanager
def local_copy(path: Path, advance: Callable[[int], None] = lambda _nbytes: None) -> Iterator[Path]:
    """Copy a file of an object store to a temporary folder; yield its path.

    That of a local file is its own. Errors of the block are told as of the file itself.

    Parameters
    ----------
    path : Path
    advance : callable, optional
        Called with the bytes of each part that is copied.

    Raises
    ------
    CheckpointError
        If there is no room, or the file cannot be read.
    """
    if not is_remote(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="tensorcomp-") as folder:
        copy = Path(folder, path.name)
        with contextlib.closing(RemoteFile(path)) as remote:
            _copy(remote, copy, advance)
        try:
            yield copy
        except TensorcompError as error:
            error.path = str(path) if error.path == str(copy) else error.path
            raise


def _copy(remote: RemoteFile, copy: Path, advance: Callable[[int], None]) -> None:
    import shutil

    place = tempfile.gettempdir()
    full = CheckpointError(
        f"expected room for a copy of {bytes_text(remote.size)} in {place}, which is full; "
        "free some, or let TMPDIR name another folder",
        path=remote.path,
    )
    if shutil.disk_usage(place).free < remote.size:
        raise full
    try:
        with copy.open("wb", buffering=0) as file:
            for data in remote.blocks():
                file.write(data)
                advance(data.nbytes)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise full from error
        raise
