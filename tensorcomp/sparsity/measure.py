"""Count the zeros of a checkpoint, and measure what they save."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tensorcomp._formatting import shown
from tensorcomp._threads import Workers
from tensorcomp.checkpoints.base import Checkpoint, TensorInfo
from tensorcomp.checkpoints.in_memory import MemoryCheckpoint
from tensorcomp.codecs.bit_views import as_words
from tensorcomp.codecs.rounding import is_real
from tensorcomp.container.model import open_model
from tensorcomp.container.reader import CompressedFile
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.errors import CheckpointError, PruningError
from tensorcomp.planning.roles.classify import is_mask, mask_of
from tensorcomp.progress import Progress
from tensorcomp.pruning.keep_indices import KeptSlices, kept_slices
from tensorcomp.selection.checks import require_mask
from tensorcomp.sparsity.figures import SparsityReport, SparsityRow
from tensorcomp.sparsity.storage import storage_bytes

_PIECE = 1 << 20  # elements looked at together
_ROOM = 1 << 26  # bytes of tensors that a thread holds


class _Entry(NamedTuple):
    """A tensor of a checkpoint, and in which file of a folder it is."""

    source: Checkpoint
    info: TensorInfo
    dtype: np.dtype
    file: str | None

    @property
    def is_weight(self) -> bool:
        """Whether it holds floats, which may be pruned."""
        return is_real(self.dtype)

    def read(self) -> np.ndarray:
        """Return its array."""
        try:
            return self.source.read(self.info.name).view(self.dtype).reshape(self.info.shape)
        except ValueError as error:
            axes = f"{len(self.info.shape)} axes"
            raise CheckpointError(f"tensor {shown(self.info.name)} has {axes}: {error}") from error


def sparsity_report(
    tensors: Mapping[str, Any] | str | os.PathLike[str],
    *,
    masks: Mapping[str, np.ndarray] | None = None,
    every: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> SparsityReport:
    """Count zeros, dead rows and columns; encode tensors under each storage.

    Parameters
    ----------
    tensors : mapping of str to array, or path-like
        NumPy arrays or torch tensors by name; or a checkpoint file or folder, compressed or not.
    masks : mapping of str to numpy.ndarray, optional
        Bool, true where a weight is kept: tensors are taken as if these had been applied.
    every : bool, optional
        List all tensors; by default those of floats and two axes or more that have zeros.
    threads : int, optional
        All available processors by default. The figures do not depend on it.
    progress : Progress, optional

    Raises
    ------
    CheckpointError, FormatError
        If a file cannot be read, or is damaged.
    PruningError
        If a mask fits no tensor.
    """
    given = dict(masks or {})
    progress = progress or Progress()
    with contextlib.ExitStack() as stack:
        entries = list(_entries(tensors, stack))
        if isinstance(tensors, Mapping):
            entries.sort(key=lambda entry: entry.info.name)
        shapes = {entry.info.name: entry.info.shape for entry in entries}
        for name, mask in given.items():
            if name not in shapes:
                raise PruningError(f"a mask is for {name!r}, and there is no such tensor")
            require_mask(name, mask, shapes[name])
        progress.begin(len(entries), sum(entry.info.nbytes for entry in entries))
        workers = stack.enter_context(Workers(threads))
        rows = []
        at = {(file, e.info.name): e for e in entries for file in (None, e.file)}

        def row_of(entry: _Entry) -> SparsityRow:
            mask, name = given.get(entry.info.name), mask_of(entry.info.name)
            stored = at.get((entry.file, name)) or at.get((None, name))
            if mask is None and stored is not None and stored.info.shape == entry.info.shape:
                mask = stored.read() != 0
            return _row(entry, mask, every=every)

        def room(entry: _Entry) -> int:
            return 2 * entry.info.nbytes

        for entry, row in workers.in_order(row_of, entries, size=room, memory_budget=_ROOM):
            progress.advance(row.name, entry.info.nbytes)
            rows.append(row)
    weights = [row for row in rows if row.is_weight]
    kept: dict[str, KeptSlices] = {}
    for row in weights:
        if row.kept is not None:
            kept[row.name if row.name not in kept else f"{row.file}:{row.name}"] = row.kept
    return SparsityReport(
        rows=tuple(row for row in rows if row.sizes),
        elements=sum(row.elements for row in weights),
        zeros=sum(row.zeros for row in weights),
        kept=kept,
    )


def _entries(
    tensors: Mapping[str, Any] | str | os.PathLike[str], stack: contextlib.ExitStack
) -> Iterator[_Entry]:
    """Yield the tensors of NumPy dtypes; further names of tied ones are left out."""
    sources: list[tuple[str | None, Checkpoint]]
    if isinstance(tensors, Mapping):
        sources = [(None, MemoryCheckpoint(tensors))]
    else:
        model = open_model(tensors)
        sources = [
            (model.label(shard), stack.enter_context(model.open(shard))) for shard in model.shards
        ]
    for label, source in sources:
        if isinstance(source, CompressedFile):
            source.check_expansion()
        for info in source.arrays:
            dtype = numpy_dtype(info.dtype)
            if dtype is not None and info.dtype[0] != "C":
                yield _Entry(source, info, dtype, label)


def _row(entry: _Entry, mask: np.ndarray | None, *, every: bool) -> SparsityRow:
    """Count the zeros of a tensor; measure its storages if it is listed."""
    source, info = entry.source, entry.info
    array = entry.read()
    is_weight = entry.is_weight and not info.name.endswith("_mask") and not is_mask(array)
    if mask is not None:
        array = np.where(mask, array, array.dtype.type(0))
    zeros, negative = _count_zeros(array, signed=entry.is_weight)
    stored = None if isinstance(source, MemoryCheckpoint) else info.nbytes
    row = SparsityRow(
        name=info.name,
        file=entry.file,
        dtype=info.dtype,
        shape=info.shape,
        zeros=zeros,
        negative_zeros=negative,
        kept=kept_slices(array) if array.ndim > 1 else None,
        is_weight=is_weight,
        stored=source.blob_bytes(info.name) if isinstance(source, CompressedFile) else stored,
    )
    if not (every or (zeros and is_weight and array.ndim > 1)):
        return row
    found = storage_bytes(array)
    return replace(row, sizes=found.sizes, best=found.best, pattern=found.pattern)


def _count_zeros(array: np.ndarray, *, signed: bool) -> tuple[int, int]:
    """Count zeros, and those of them with a sign bit if signs count."""
    words = as_words(array).reshape(-1)
    shift = words.dtype.type(1 if signed else 0)
    values = nothing = 0
    for start in range(0, words.size, _PIECE):
        piece = words[start : start + _PIECE]
        nothing += piece.size - int(np.count_nonzero(piece))
        values += int(np.count_nonzero(piece << shift))
    zeros = words.size - values
    return zeros, zeros - nothing
