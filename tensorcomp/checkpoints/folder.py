"""Find the checkpoint files of a folder: shards, their indexes, other files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from tensorcomp._formatting import shown
from tensorcomp._log import LOGGER
from tensorcomp.checkpoints.open import detect_format
from tensorcomp.checkpoints.shards import check_shards, numbered_shards, read_index
from tensorcomp.errors import CheckpointError
from tensorcomp.io.files import file_size, reading, writing

SAFETENSORS_SUFFIX = ".safetensors"
TORCH_SUFFIXES = (".bin", ".pt", ".pth")

# What version control and download tools keep beside the files; it does not belong to a model.
_SKIPPED_FOLDERS = frozenset((".git", ".cache"))


def scan_folder(path: str | os.PathLike[str]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Find the checkpoint files of a folder; check shards against indexes.

    Weights are all ``.safetensors`` files, all files that a ``*.index.json`` names, and those
    ``.bin``, ``.pt`` and ``.pth`` files that torch can load as plain tensors. Links are followed;
    ``.git`` and ``.cache`` folders are left out.

    Parameters
    ----------
    path : str or path-like
        The folder.

    Returns
    -------
    weights, others : tuple of Path
        Checkpoint files, each to be opened by `open_checkpoint`, and all other files, to be carried
        over unchanged: paths relative to the folder.

    Raises
    ------
    CheckpointError
        If it holds no weights, a file cannot be read, a shard or a tensor that an index names is
        missing, two shards of a model hold one tensor, or an index does not know a shard or a
        tensor that is there.
    """
    root = Path(path)
    with reading(root):
        is_folder = root.is_dir()
    if not is_folder:
        raise CheckpointError(f"{shown(root)}: is not a folder that can be read")
    files = sorted(_walk(root, PurePosixPath(), ()))
    weights: set[PurePosixPath] = set()
    for folder in sorted({file.parent for file in files}):
        names = [file.name for file in files if file.parent == folder]
        weights.update(folder / name for name in _folder_weights(root / folder, names))
    if not weights:
        raise CheckpointError("holds no .safetensors, .bin, .pt or .pth checkpoint", path=root)
    return (
        tuple(Path(file) for file in files if file in weights),
        tuple(Path(file) for file in files if file not in weights),
    )


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
            shutil.copyfile(source / file, copied)


def _walk(
    root: Path, folder: PurePosixPath, ancestors: tuple[Path, ...]
) -> Iterator[PurePosixPath]:
    """Yield all regular files, links followed; refuse links to a folder above."""
    here = root / folder
    with reading(here):
        real = here.resolve()
        entries = sorted(entry.name for entry in here.iterdir())
    if real in ancestors:
        raise CheckpointError("is a link to a folder that holds it; remove it", path=here)
    for name in entries:
        entry = here / name
        if not entry.is_dir():
            file_size(entry)  # refuses broken links, devices, pipes
            yield folder / name
        elif name not in _SKIPPED_FOLDERS:
            yield from _walk(root, folder / name, (*ancestors, real))


def _folder_weights(folder: Path, names: list[str]) -> set[str]:
    """Return the weights of one folder, after checking shards against indexes."""
    present = set(names)
    weights = {name for name in names if name.endswith(SAFETENSORS_SUFFIX)}
    for name in weights:
        detect_format(folder / name)
    indexes = [index for name in names if (index := read_index(folder / name)) is not None]
    for index in indexes:
        check_shards(index, present)
        weights |= index.shards
    indexed = {shard for index in indexes for shard in index.shards}
    for model in numbered_shards(folder, sorted(weights - indexed)):
        check_shards(model, weights)
    for name in names:
        if name.endswith(TORCH_SUFFIXES) and name not in weights and _loads(folder / name):
            weights.add(name)
    return weights


def _loads(path: Path) -> bool:
    """Return whether a torch file holds plain tensors."""
    from tensorcomp.checkpoints.layouts.torch_file import TorchFile

    try:
        if detect_format(path) != "torch":
            return False
        with TorchFile(path) as checkpoint:
            return bool(checkpoint.tensors)
    except CheckpointError as error:
        LOGGER.info("%s; carried over unchanged", error)
        return False
