"""Write the folder of a model into an object store.

Objects cannot be renamed, so that a folder is there before it is whole.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tensorcomp._formatting import shown
from tensorcomp.checkpoints.shards import is_index
from tensorcomp.errors import CheckpointError
from tensorcomp.io.files import UNFINISHED, is_temporary
from tensorcomp.io.locations import RemotePath
from tensorcomp.io.s3_upload import EXISTS
from tensorcomp.io.spool import local_copy
from tensorcomp.io.store_errors import repeated
from tensorcomp.io.store_output import kind_of, put_file, spool_folder

if TYPE_CHECKING:
    from tensorcomp.container.model import Model

_MARK = "tensorcomp was stopped while it wrote this folder; run the same command again\n"


@contextlib.contextmanager
def store_folder(
    model: Model,
    target: Path,
    outputs: Mapping[Path, Path],
    written: Mapping[Path, Path],
    texts: Mapping[Path, str],
    *,
    force: bool,
    spooled: bool,
) -> Iterator[Path]:
    """Write a folder of a store in an order that shows whether it is whole.

    First comes a mark, then other files, shards, and indexes; then the mark goes. Whoever reads the
    folder is told of a mark that a killed run has left, and the next run writes all files anew.

    Parameters
    ----------
    model : Model
        Whose other files are copied.
    target : Path
    outputs : mapping of Path to Path
        What each name of a file becomes, relative to the folder.
    written : mapping of Path to Path
        Those of them that are shards.
    texts : mapping of Path to str
        Indexes to write.
    force : bool
    spooled : bool
        Whether shards are written more than once: to a local folder then, and uploaded in the end.

    Raises
    ------
    CheckpointError
        If the folder holds something and `force` is not given, or the store refuses.
    """
    copied = {name: model.path / file for file, name in outputs.items() if file not in written}
    names = {name.as_posix() for name in (*outputs.values(), *texts)}
    found = _refuse_existing_folder(target, names, force=force)
    mark = target / UNFINISHED

    def begin() -> None:
        mark.write_text(_MARK)
        for old in found:
            if is_index(old.rpartition("/")[2]):
                (target / old).unlink()
        for name, file in copied.items():
            if not is_index(name.name):
                _copy(file, target / name)

    if spooled:
        with spool_folder(target) as folder:
            for name in outputs.values():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
            yield folder
            begin()
            for file in (folder / written[shard] for shard in model.shards):
                put_file(file, target / file.relative_to(folder), force=True)
    else:
        begin()
        yield target
    for link, shard in model.links.items():
        if link in written:
            _copy_within(target / written[shard], target / written[link])
    for name, file in copied.items():
        if is_index(name.name):
            _copy(file, target / name)
    for name, text in texts.items():
        (target / name).write_text(text)
    mark.unlink()


def _refuse_existing_folder(target: Path, names: set[str], *, force: bool) -> set[str]:
    """Require that a folder may be written; return the names of what is in it."""
    kind = kind_of(target)
    if kind is None:
        return set()
    if kind != "directory":
        raise CheckpointError(
            "exists already and is not a folder; give another by out=…", path=target
        )
    found = {file.relative_to(target).as_posix() for file in target.rglob("*")}
    if not force and UNFINISHED not in found:
        raise CheckpointError(EXISTS, path=target)
    strange = sorted(name for name in found - names if not is_temporary(Path(name)))
    if strange:
        raise CheckpointError(
            f"holds {shown(strange[0])}, which the output does not; move it away, or give another "
            "folder by out=…",
            path=target,
        )
    return found


def _copy(source: Path, target: Path) -> None:
    with local_copy(source) as file:
        put_file(file, target, force=True)


def _copy_within(source: Path, target: Path) -> None:
    """Copy an object, in the store."""
    one, other = cast("RemotePath", source), cast("RemotePath", target)
    repeated(str(target), lambda: one.fs.copy(one.path, other.path), doing="written")
