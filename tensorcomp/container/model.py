"""Open a model: one checkpoint file, or a folder of shards, compressed or not."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tensorcomp.checkpoints.base import Checkpoint
from tensorcomp.checkpoints.folder import scan_folder
from tensorcomp.checkpoints.open import open_checkpoint
from tensorcomp.container.paths import COMPRESSED, is_compressed
from tensorcomp.container.reader import CompressedFile
from tensorcomp.errors import CheckpointError
from tensorcomp.io.atomic import is_temporary


@dataclass(frozen=True)
class Model:
    """Checkpoint files that belong together; a single file is a model of one shard.

    Parameters
    ----------
    path : Path
        The file or folder.
    shards : tuple of Path
        Relative to `path`; of a single file, its name.
    others : tuple of Path
        The folder's other files, relative to it.
    is_folder : bool
    """

    path: Path
    shards: tuple[Path, ...]
    others: tuple[Path, ...] = ()
    is_folder: bool = False

    def file(self, shard: Path) -> Path:
        """Return the path of a shard."""
        return self.path / shard if self.is_folder else self.path

    def label(self, shard: Path) -> str | None:
        """Return the name of a shard, where it is one of a folder's."""
        return shard.as_posix() if self.is_folder else None

    def open(self, shard: Path) -> Checkpoint:
        """Open a shard; a compressed one is read decoded.

        Raises
        ------
        CheckpointError, FormatError
            If it cannot be read.
        """
        return open_any(self.file(shard))

    def keys(self) -> dict[Path, dict[str, str]]:
        """Return for each shard names of its tensors that no other tensor of the model has.

        That is their name; behind the shard's path and a colon, where several shards have the name.
        """
        names = {shard: self._names(shard) for shard in self.shards}
        shards_with = Counter(name for shard in names.values() for name in shard)
        return {
            shard: {
                name: name if shards_with[name] == 1 else f"{shard.as_posix()}:{name}"
                for name in own
            }
            for shard, own in names.items()
        }

    def _names(self, shard: Path) -> list[str]:
        with self.open(shard) as checkpoint:
            return [info.name for info in checkpoint.tensors]


def open_model(path: str | os.PathLike[str], *, compressed: bool | None = None) -> Model:
    """Find the checkpoint files of a path.

    Parameters
    ----------
    path : str or path-like
    compressed : bool, optional
        Whether a folder's compressed files or its other checkpoints are meant; by default those, if
        there are any.

    Raises
    ------
    CheckpointError
        If a folder holds none, or its shards and indexes do not agree.
    """
    path = Path(path)
    if not path.is_dir():
        return Model(path, (Path(path.name),))
    files = sorted(file.relative_to(path) for file in path.rglob("*") if file.is_file())
    found = tuple(file for file in files if file.name.endswith(COMPRESSED))
    rest = (file for file in files if not file.name.endswith(COMPRESSED))
    if compressed or (compressed is None and found):
        if not found:
            raise CheckpointError(f"{path}: holds no *{COMPRESSED} file")
        others = (file for file in rest if not is_temporary(file))
        return Model(path, found, tuple(others), is_folder=True)
    folder = scan_folder(path)
    return Model(path, folder.weights, folder.others, is_folder=True)


def open_any(path: Path) -> Checkpoint:
    """Open a checkpoint file of any format; a compressed one is read decoded.

    Raises
    ------
    CheckpointError, FormatError
        If it cannot be read.
    """
    checkpoint = open_checkpoint(path)
    if not is_compressed(checkpoint):
        return checkpoint
    checkpoint.close()
    return CompressedFile(path)
