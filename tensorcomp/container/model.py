"""Open models, compressed or not, and name their outputs."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import NamedTuple

import numpy as np

from tensorcomp.checkpoints.base import Checkpoint, TensorInfo
from tensorcomp.checkpoints.folder import copy_others, scan_folder
from tensorcomp.checkpoints.open import open_checkpoint
from tensorcomp.checkpoints.safetensors.file import SafetensorsFile
from tensorcomp.container.chunk_grid import ChunkGrid, chunk_grid
from tensorcomp.container.manifest import METADATA_KEY, is_manifest
from tensorcomp.container.reader import CompressedFile
from tensorcomp.container.tensor_blob import ChunkedTensor
from tensorcomp.errors import CheckpointError
from tensorcomp.io.files import atomic_folder, is_temporary

COMPRESSED = ".tc.safetensors"
SAFETENSORS = ".safetensors"
FOLDER = ".tc"


@dataclass(frozen=True)
class Model:
    """Checkpoint files of a model; a single file is its only shard.

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
        """Open a shard; a compressed one is read decoded."""
        return open_any(self.file(shard))

    def keys(self) -> dict[Path, dict[str, str]]:
        """Return for each shard a key of each tensor, unique in the model.

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
    """Return the model at a path: a file, or the shards of a folder.

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
    if compressed is not False:  # else scan_folder alone walks the folder
        files = sorted(file.relative_to(path) for file in path.rglob("*") if file.is_file())
        shards = tuple(file for file in files if file.name.endswith(COMPRESSED))
        if shards:
            rest = (file for file in files if not file.name.endswith(COMPRESSED))
            others = tuple(file for file in rest if not is_temporary(file))
            return Model(path, shards, others, is_folder=True)
        if compressed:
            raise CheckpointError(
                f"{path}: holds no *{COMPRESSED} file; give a folder that was compressed"
            )
    weights, others = scan_folder(path)
    return Model(path, weights, others, is_folder=True)


class PlainTensor(NamedTuple):
    """Uncompressed tensor as a single chunk, a view of its file."""

    grid: ChunkGrid
    values: np.ndarray

    def decode_chunk(self, index: int, out: np.ndarray | None = None) -> np.ndarray:
        """Return the values, copied into `out` if given."""
        assert index == 0
        if out is None:
            return self.values
        out[...] = self.values
        return out


def open_tensor(checkpoint: Checkpoint, info: TensorInfo) -> ChunkedTensor:
    """Return a tensor of any checkpoint, to be read by rows (see `decode_rows`)."""
    if isinstance(checkpoint, CompressedFile):
        return checkpoint.open_tensor(info.name)
    grid = chunk_grid(info.dtype, info.shape, info.nbytes, info.nbytes + 1)
    return PlainTensor(grid, checkpoint.read(info.name).view(grid.dtype).reshape(grid.shape))


def stored_bytes(checkpoint: Checkpoint, info: TensorInfo) -> int:
    """Return the bytes that a tensor takes in its file."""
    if isinstance(checkpoint, CompressedFile):
        return checkpoint.blob_bytes(info.name)
    return info.nbytes


def open_any(path: Path) -> Checkpoint:
    """Open a checkpoint file of any format; a compressed one is read decoded."""
    checkpoint = open_checkpoint(path)
    if isinstance(checkpoint, SafetensorsFile) and is_compressed(checkpoint):
        return CompressedFile(checkpoint)
    return checkpoint


def default_output(source: Path) -> Path:
    """Return the default output path of `compress`."""
    if source.is_dir():
        return source.resolve().with_name(source.resolve().name + FOLDER)
    return source.with_name(compressed_name(source.name))


def compressed_name(name: str) -> str:
    """Return the name of a compressed file, such as model.pt.tc.safetensors."""
    return name.removesuffix(SAFETENSORS) + COMPRESSED


def restored_name(name: str, kind: str) -> str:
    """Return the name of the file of this kind that a compressed file restores."""
    name = name.removesuffix(COMPRESSED)
    if kind == "safetensors":
        return name + SAFETENSORS
    return name if "." in name else name + {"torch": ".pt"}.get(kind, f".{kind}")


def restored_shards(model: Model) -> tuple[dict[Path, Path], int]:
    """Return the restored path of each compressed shard, and the decoded bytes."""
    restored, nbytes = {}, 0
    for shard in model.shards:
        with CompressedFile(model.file(shard)) as opened:
            restored[shard] = shard.with_name(restored_name(shard.name, opened.template().kind))
            nbytes += sum(info.nbytes for info in opened.tensors)
    return restored, nbytes


@contextlib.contextmanager
def open_original(path: Path) -> Iterator[Checkpoint]:
    """Open a checkpoint that is not compressed.

    Raises `CheckpointError` if it cannot be read, or is compressed.
    """
    with open_checkpoint(path) as checkpoint:
        if is_compressed(checkpoint):
            raise CheckpointError(
                "tensorcomp has compressed it already; decompress it first", path=path
            )
        yield checkpoint


def is_compressed(checkpoint: Checkpoint) -> bool:
    """Return whether a safetensors file is one that `compress` wrote."""
    return is_manifest((checkpoint.metadata or {}).get(METADATA_KEY))


def refuse_itself(source: Path, target: Path) -> None:
    """Raise `CheckpointError` if an output would replace its input."""
    if target.exists() and source.exists() and target.samefile(source):
        raise CheckpointError(
            "the output would replace the input; give another by out=…", path=source
        )


@contextlib.contextmanager
def output_folder(
    model: Model, target: Path, written: Mapping[Path, Path], *, force: bool
) -> Iterator[Path]:
    """Make a folder atomically with a model's other files; yield its path.

    Parameters
    ----------
    model : Model
    target : Path
    written : mapping of Path to Path
        The file that each shard becomes, relative to the folder.
    force : bool

    Raises
    ------
    CheckpointError
        If one of the folders contains the other, or the output cannot be made.
    """
    inner, outer = model.path.resolve(), target.resolve()
    if outer.is_relative_to(inner):
        raise CheckpointError("lies in the input folder; give another by out=…", path=target)
    if inner.is_relative_to(outer):
        raise CheckpointError("holds the input folder; give another by out=…", path=target)
    names = {PurePath(name) for name in (*model.others, *written.values())}
    with atomic_folder(target, names, force=force) as partial:
        copy_others(model.path, model.others, partial)
        for name in written.values():
            (partial / name).parent.mkdir(parents=True, exist_ok=True)
        yield partial
