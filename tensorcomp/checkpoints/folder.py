"""Find the checkpoint files of a folder: shards, their indexes, other files."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from tensorcomp._formatting import printable, shown
from tensorcomp._log import LOGGER
from tensorcomp.checkpoints.open import describe_unknown, detect_format, open_checkpoint
from tensorcomp.checkpoints.shards import check_shards, numbered_shards, read_index
from tensorcomp.errors import CheckpointError
from tensorcomp.io.files import UNFINISHED, file_size, is_temporary, reading, writing
from tensorcomp.io.locations import is_remote, location

SAFETENSORS_SUFFIX = ".safetensors"

# What version control and download tools keep beside the files; it does not belong to a model.
_SKIPPED_FOLDERS = frozenset((".git", ".cache"))
# Files with such names that are not compressed are told of.
_CHECKPOINT_NAME = re.compile(
    r"(?is).*\.(safetensors|bin|pt|pth|ckpt|npz|gguf|h5|hdf5|keras|onnx|distcp)"
    r"(\.(tar|gz|bz2|xz|zst|zip))?"
)
_PACKED = ("npz", "torch")  # whose members may be packed
_LEAST_BYTES = 1 << 20  # of a file of no known format that is compressed: it may be of use as it is

_LEAST_KNOWN_BYTES = 1 << 12  # of one of a known format without arrays, such as an ONNX graph


class FolderFiles(NamedTuple):
    """Files of a folder, by what is done with them: paths relative to it.

    Attributes
    ----------
    weights : tuple of Path
        Checkpoint files, each to be opened by `open_checkpoint`.
    others : tuple of Path
        All other files, to be carried over unchanged.
    unread : dict of str to str
        Those of `others` that seem to be checkpoints, and why they cannot be read.
    links : mapping of Path to Path
        Further names of files in `weights` and `others`: hard or symbolic links.
    """

    weights: tuple[Path, ...]
    others: tuple[Path, ...]
    unread: dict[str, str]
    links: Mapping[Path, Path]


def scan_folder(
    path: str | os.PathLike[str],
    replaced: Mapping[Path, Path] = MappingProxyType({}),
    left_out: Collection[Path] = (),
) -> FolderFiles:
    """Find the checkpoint files of a folder; check shards against indexes.

    Weights are all ``.safetensors`` files, all files that a ``*.index.json`` names, and all others
    that can be read as checkpoints with tensors, whatever their names. Links are followed; ``.git``
    and ``.cache`` folders are left out.

    Parameters
    ----------
    path : str or path-like
        The folder.
    replaced : mapping of Path to Path
        Checkpoint files that others are there for, relative to the folder: those count in place of
        these.
    left_out : collection of Path
        Files to leave out.

    Raises
    ------
    CheckpointError
        If it holds no weights, a file cannot be read, a shard or a tensor that an index names is
        missing, two shards of a model hold one tensor, an index does not know a shard or a tensor
        that is there, or it is the cache of a hub.
    """
    root = location(path)
    found, links = walk_folder(root)
    files = sorted({*found, *replaced}.difference(replaced.values(), left_out))
    by_folder: dict[Path, list[str]] = {}
    for file in sorted((*files, *links)):
        by_folder.setdefault(file.parent, []).append(file.name)
    weights: set[Path] = set()
    unread: dict[str, str] = {}
    for folder, names in by_folder.items():
        known = _known_weights(root / folder, names)
        for name in names:
            file = folder / name
            is_known = name in known or file in replaced
            if is_known or (file not in links and _is_checkpoint(root, file, unread)):
                weights.add(links.get(file, file))
    if not weights:
        why = next((f"; {shown(file)} {reason}" for file, reason in unread.items()), "")
        raise CheckpointError(f"holds no checkpoint{why}", path=root)
    for reason in dict.fromkeys(unread.values()):
        first, *more = (root / file for file, why in unread.items() if why == reason)
        place = printable(f"{first} and {len(more):,} more" if more else str(first))
        LOGGER.warning("%s: %s; left as it is", place, reason)
    others = (file for file in files if file not in weights)
    # An ONNX model comes after the files of its external data: without it, they are bytes.
    in_order = sorted(weights, key=lambda file: (file.suffix == ".onnx", file))
    return FolderFiles(tuple(in_order), tuple(others), unread, links)


def walk_folder(root: Path) -> tuple[list[Path], dict[Path, Path]]:
    """Return the files of a folder, relative to it, and further names of them.

    Where several names lead to one file, the first that is not a symbolic link stands for it.
    """
    with reading(root):
        is_folder = root.is_dir()
    if not is_folder:
        raise CheckpointError(f"{shown(root)}: is not a folder that can be read")
    first: dict[tuple[int, int], Path] = {}
    links = {}
    found = sorted(_walk(root, Path(), ()))
    for file in sorted(found, key=lambda file: (root / file).is_symlink()):
        if is_remote(root):  # where a file has one name
            break
        status = (root / file).stat()
        if (kept := first.setdefault((status.st_dev, status.st_ino), file)) != file:
            links[file] = kept
    return [file for file in found if file not in links], links


def copy_others(source: Path, files: Iterable[Path], target: Path) -> None:
    """Copy files, relative to one folder, into another.

    Links become the files that they lead to.
    """
    import shutil  # and all archives that it knows

    for file in files:
        copied = target / file
        with writing(copied):
            copied.parent.mkdir(parents=True, exist_ok=True)
            if copied.is_symlink():
                copied.unlink()  # copying would write to where it leads, perhaps outside
            if is_remote(source):
                from tensorcomp.io.remote_file import RemoteFile

                with (
                    contextlib.closing(RemoteFile(source / file)) as remote,
                    copied.open("wb") as new,
                ):
                    new.writelines(remote.blocks())
            else:
                shutil.copyfile(source / file, copied)


def _walk(root: Path, folder: Path, ancestors: tuple[Path, ...]) -> Iterator[Path]:
    """Yield all regular files, links followed; refuse links to a folder above."""
    here = root / folder
    with reading(here):
        real = here.resolve()
        found = sorted(here.iterdir())
        entries = [entry for entry in found if not is_temporary(entry)]
    if any(entry.name == UNFINISHED for entry in found):
        raise CheckpointError(
            "is unfinished: a run was stopped while it wrote it; run that one again", path=here
        )
    if real in ancestors:
        raise CheckpointError("is a link to a folder that holds it; remove it", path=here)
    if {"blobs", "snapshots"} <= {entry.name for entry in entries}:
        newest = max((here / "snapshots").iterdir(), key=lambda f: f.stat().st_mtime, default="…")
        raise CheckpointError(
            "is a hub's cache, which holds each file as a blob and as links to it; give the "
            f"folder of a snapshot, such as {newest}",
            path=here,
        )
    for entry in entries:
        if not entry.is_dir():
            file_size(entry)  # refuses broken links, devices, pipes
            yield folder / entry.name
        elif entry.name not in _SKIPPED_FOLDERS:
            yield from _walk(root, folder / entry.name, (*ancestors, real))


def _known_weights(folder: Path, names: list[str]) -> set[str]:
    """Return the weights by name or index, after checking shards against indexes."""
    weights = {name for name in names if name.lower().endswith(SAFETENSORS_SUFFIX)}
    for name in weights:
        if (folder / name).exists():  # else another file is there for it
            detect_format(folder / name)
    indexes = [index for name in names if (index := read_index(folder / name)) is not None]
    for index in indexes:
        check_shards(index, names)
        weights |= index.shards
    indexed = {shard for index in indexes for shard in index.shards}
    for model in numbered_shards(folder, sorted(weights - indexed)):
        check_shards(model, weights)
    return weights


def _is_checkpoint(root: Path, file: Path, unread: dict[str, str]) -> bool:
    """Return whether a file holds tensors; note why if it is a checkpoint that cannot be read.

    One of no known format is taken as bytes if it is long and has the name of a checkpoint.
    """
    path = root / file
    is_noted = _CHECKPOINT_NAME.fullmatch(file.name) is not None
    try:
        kind = detect_format(path)
        if kind == "bytes" and (not is_noted or file_size(path) < _LEAST_BYTES):
            if is_noted:
                unread[file.as_posix()] = f"is {describe_unknown(path)}"
            return False
        if is_remote(path):  # which would be copied whole to find its arrays
            return True
        is_noted |= kind != "safetensors"  # else a short magic, maybe chance
        with open_checkpoint(path) as checkpoint:
            is_told_of = checkpoint.notes is not None and checkpoint.nbytes >= _LEAST_KNOWN_BYTES
            if not checkpoint.arrays and kind in _PACKED and checkpoint.notes:
                unread[file.as_posix()] = checkpoint.notes[0]  # nothing is gained
                return False
            return bool(checkpoint.arrays) or kind == "bytes" or is_told_of
    except CheckpointError as error:
        if is_noted:
            unread[file.as_posix()] = str(error).removeprefix(f"{path}: ")
        return False
