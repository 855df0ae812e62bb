"""Decompress files and folders."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np

from tensorcomp._formatting import shown
from tensorcomp._threads import Workers
from tensorcomp.api.replace import Replace, Replacement, check_model, require_room
from tensorcomp.checkpoints.base import Checkpoint, SourceTemplate
from tensorcomp.checkpoints.open import restore
from tensorcomp.container.model import (
    FOLDER,
    BasePaths,
    Model,
    base_paths,
    open_model,
    refuse_bases,
    refuse_itself,
    refuse_suffix,
    restored_name,
    restored_shards,
)
from tensorcomp.container.output_folder import output_folder
from tensorcomp.container.reader import CompressedFile
from tensorcomp.container.tensor_blob import BundleMember, TensorBlob, checked_bytes
from tensorcomp.errors import CheckpointError, located
from tensorcomp.io.files import atomic_file, writing
from tensorcomp.io.locations import location
from tensorcomp.progress import Progress


def decompress(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    threads: int | None = None,
    force: bool = False,
    replace: Replace = False,
    max_bytes: int | None = None,
    bases: BasePaths = (),
    progress: Progress | None = None,
) -> Path:
    """Restore the file or folder that `compress` read.

    It is restored byte for byte, but for what lossy compression changed.

    Parameters
    ----------
    path : str or path-like
        A compressed file, or a folder that `compress` wrote.
    out : str or path-like, optional
        By default beside the input, under the name it had.
    threads, force, progress
        As for `compress`.
    replace : bool or "lossy"
        As for `compress`; ``"lossy"`` allows it for files of lossy compression.
    max_bytes : int, optional
        Limit of the bytes of tensors once decoded; by default 1 GiB and 1,000 times the file.
    bases : path or iterable of paths, optional
        Files and folders to find the bases in that it was compressed against; else its own folder.

    Returns
    -------
    Path
        The restored file or folder.

    Raises
    ------
    CheckpointError, FormatError, VerificationError
        If the input cannot be read, is not a compressed checkpoint, or is damaged, or the output
        exists or cannot be written. The output is then as it was.
    """
    source = location(path)
    progress = progress or Progress()
    if replace:
        model = open_model(source, compressed=True, bases=bases)
        check_model(model, out)
        return _replace(model, replace, threads, progress, max_bytes, force=force)
    if not source.is_dir():
        with CompressedFile(source, base_paths(bases)) as file:
            file.check_expansion(max_bytes)
            kind = file.template().format
            target = location(out or source.with_name(restored_name(source.name, kind)))
            if out is not None:
                refuse_suffix(source, target, kind)
            refuse_itself(source, target)
            refuse_bases([file], target)
            new = atomic_file(target, force=force, nbytes=_in_one_go(file), progress=progress)
            _restore_file(file, new, threads, progress)
        return target
    model = open_model(source, compressed=True, bases=bases)
    target = location(out) if out is not None else _restored_folder(source.resolve())
    restored, nbytes = restored_shards(model)
    progress.begin_folder(nbytes)
    with output_folder(model, target, restored, force=force) as partial:
        for shard in model.shards:
            with CompressedFile(model.file(shard), model.bases) as file:
                file.check_expansion(max_bytes)
                refuse_bases([file], target)
                name = partial / restored[shard]
                new = atomic_file(name, force=True, nbytes=_in_one_go(file))
                _restore_file(file, new, threads, progress)
    return target


def _replace(
    model: Model,
    replace: Replace,
    threads: int | None,
    progress: Progress,
    max_bytes: int | None,
    *,
    force: bool,
) -> Path:
    """Restore the files of a model, each in its own place."""
    restored, nbytes = restored_shards(model)
    left, grown, peaks = [], 0, []
    for shard, name in restored.items():
        file = model.file(shard)
        target = file.with_name(name.name)
        refuse_itself(file, target)
        item = Replacement(file, target, replace, threads, force, restore=True)
        if item.is_left():
            left.append(item)
            with CompressedFile(file, model.bases) as opened:
                opened.check_expansion(max_bytes)
                refuse_bases([opened], target)
                peaks.append((grown + opened.manifest.source_bytes, target))
                grown += opened.manifest.source_bytes - opened.nbytes
    if left:
        require_room([item.target for item in left], *max(peaks))
    for index in model.indexes:  # of files that will not be there
        with writing(model.path / index):
            (model.path / index).unlink()
    progress.begin_folder(nbytes)
    for item in left:
        with item.create() as new, CompressedFile(item.source, model.bases) as opened:
            _restore_file(opened, contextlib.nullcontext(new), threads, progress)
    return model.path if model.is_folder else target


def _restored_folder(source: Path) -> Path:
    """Return the folder that was compressed, by its name."""
    if not source.name.endswith(FOLDER):
        wrong = f"expected a name that ends in {FOLDER}, got {shown(source.name)}"
        raise CheckpointError(f"{wrong}; give out=…", path=source)
    return source.with_name(source.name.removesuffix(FOLDER))


def _restore_file(
    file: CompressedFile,
    new: AbstractContextManager[io.BufferedRandom],
    threads: int | None,
    progress: Progress,
) -> None:
    progress.begin(len(file.tensors), sum(info.nbytes for info in file.tensors))
    file.find_bases()  # before anything is written
    file.read_ahead()
    with Workers(threads) as workers, new as out, located(path=file.where):
        restore(file.manifest.template, _Decoder(file, workers, progress), out)


def _in_one_go(file: CompressedFile) -> int | None:
    """Return the bytes of a file that is restored from its beginning to its end."""
    manifest = file.manifest
    return manifest.source_bytes if manifest.template.kind == "safetensors" else None


class _Decoder(Checkpoint):
    """View of a compressed file whose chunks are decoded ahead on threads."""

    def __init__(self, file: CompressedFile, workers: Workers, progress: Progress) -> None:
        self.tensors = file.tensors
        self._file = file
        self._progress = progress
        self._due = iter(file.tensors)
        self._decoded = workers.in_order(_decode_job, self._jobs(), prefetch=8)

    def _jobs(self) -> Iterator[tuple[TensorBlob | BundleMember, int]]:
        for info in self.tensors:
            tensor = self._file.open_tensor(info.name)
            yield from ((tensor, index) for index in range(tensor.grid.count))

    def template(self) -> SourceTemplate:
        """Return what rebuilds the original file."""
        return self._file.template()

    def is_exact(self, name: str) -> bool:
        """Return whether a tensor is what the original file held."""
        return self._file.is_exact(name)

    def read(self, name: str) -> np.ndarray:
        """Return a tensor's bytes."""
        return np.concatenate(list(self.iter_bytes(name)))

    def iter_bytes(self, name: str) -> Iterator[np.ndarray]:
        """Yield a tensor's bytes; quickest if tensors are asked for in their order."""
        due = next(self._due, None)
        if due is not None and due.name == name:
            parts = self._next_tensor()
        else:
            self._due = iter(())  # out of order: what was decoded ahead is of no use from here on
            parts = self._file.iter_bytes(name)
        for data in parts:
            yield data
            self._progress.advance(name, data.nbytes)

    def _next_tensor(self) -> Iterator[np.ndarray]:
        """Yield the bytes of the tensor whose chunks are the next ones."""
        (tensor, _), first = next(self._decoded)
        others = itertools.islice(self._decoded, tensor.grid.count - 1)
        return checked_bytes(tensor, itertools.chain([first], (chunk for _, chunk in others)))


def _decode_job(job: tuple[TensorBlob | BundleMember, int]) -> np.ndarray:
    tensor, index = job
    return tensor.decode_chunk(index)
