"""Prepare chunks for encoding: read and plan tensors, find duplicates.

Tensors are prepared ahead of what is being written, so that all threads have work; those that are
copies in memory, and not views of a mapped file, only as far as there is room for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import starmap
from typing import NamedTuple, TypeAlias

import numpy as np
import xxhash

from tensorcomp._threads import Workers
from tensorcomp.checkpoints.base import Checkpoint, TensorInfo
from tensorcomp.codecs.bit_views import as_words
from tensorcomp.container.chunk_grid import ChunkGrid
from tensorcomp.container.records import PruningRecord
from tensorcomp.container.writer import Payload
from tensorcomp.pipeline.bundle import BundledSource, runs
from tensorcomp.pipeline.encode import EncodedChunk, TensorEncoder, planned_encoder
from tensorcomp.planning.budgets import Bound
from tensorcomp.planning.plan import TensorPlan
from tensorcomp.selection.stored.pruned_checkpoint import PrunedCheckpoint, PrunedTensor

_SMALL_BYTES = 1 << 15  # handing fewer to a thread costs more than encoding them
# Of tensors this small, most time goes to Python, whose lock threads would hand to and fro.
_SMALL_TENSOR = 1 << 17
_RUN_BYTES, _RUN_TENSORS = 1 << 19, 64  # that a thread prepares together, at most
_RUNS_AHEAD = 16
ROOM = 1 << 26  # bytes of copies a thread

# Equal tensors must share it, so that comparing their bytes is worth it.
Key: TypeAlias = tuple[str, int, str, Bound | None, PruningRecord | None, str]


class Prepared(NamedTuple):
    """Tensor ready to be encoded, its only chunk perhaps encoded already.

    The array is as codecs see it, and the digest that of its bytes.
    """

    array: np.ndarray
    digest: str
    key: Key
    coder: TensorEncoder
    encoded: EncodedChunk | None = None
    pruned: PrunedTensor | None = None

    def chunk(self, grid: ChunkGrid, index: int) -> EncodedChunk:
        """Encode a chunk."""
        start, stop = grid.bounds(index)
        return self.compared(self.coder.encode(self.array[start:stop], index), grid, index)

    def compared(self, encoded: EncodedChunk, grid: ChunkGrid, index: int) -> EncodedChunk:
        """Measure the errors of an encoded chunk against the tensor before pruning."""
        if self.pruned is None or encoded.decoded is None:
            return encoded
        start, stop = grid.bounds(index)
        original = self.pruned.original.view(grid.dtype).reshape(grid.shape)[start:stop]
        decoded = encoded.decoded.view(grid.dtype)
        zeros = as_words(self.array[start:stop]).reshape(-1) == 0
        return encoded._replace(
            from_original=self.coder.measured(original, decoded.reshape(original.shape), index),
            keeps_zeros=not ((as_words(decoded) != 0) & zeros).any(),
        )


class ChunkJob(NamedTuple):
    """Chunk to encode; -1 for the only job of a duplicate tensor."""

    info: TensorInfo
    grid: ChunkGrid
    prepared: Prepared
    chunk: int
    same_as: str | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the chunk before it is encoded; of a duplicate, all."""
        if self.chunk < 0 or self.grid.count == 1:
            return self.info.nbytes
        start, stop = self.grid.bounds(self.chunk)
        return (stop - start) * self.grid.row_elements * self.grid.dtype.itemsize

    @property
    def is_small(self) -> bool:
        """Whether passing it to a thread costs more than encoding it."""
        return self.chunk < 0 or self.prepared.encoded is not None or self.nbytes < _SMALL_BYTES


def encode(job: ChunkJob) -> EncodedChunk:
    """Encode a chunk."""
    if job.chunk < 0:
        return EncodedChunk(Payload((), 0, 0))
    if job.prepared.encoded is not None:
        return job.prepared.encoded
    return job.prepared.chunk(job.grid, job.chunk)


def chunk_jobs(
    source: BundledSource, grids: Mapping[str, ChunkGrid], effort: str, workers: Workers
) -> Iterator[ChunkJob]:
    """Yield the chunks of tensors and bundles, and an empty job per duplicate."""
    first_with: dict[Key, str] = {}

    def prepare(info: TensorInfo) -> Prepared:
        grid = grids[info.name]
        pruned = source.prune(info.name)
        data = source.read(info.name) if pruned is None else pruned.data
        array = data.view(grid.dtype).reshape(grid.shape)
        reference = source.reference(info.name, grid)
        planned = source.planned(info.name)
        if pruned is None:
            planned = source.planned_given(info.name, array, reference, effort)
        coder, encoded = planned_encoder(array, grid, planned, effort, reference)
        digest = xxhash.xxh3_128_hexdigest(data)
        key = _key(info, planned, digest, pruned)
        if encoded is None and grid.count == 1 and key not in first_with:
            encoded = coder.encode(array, 0)  # one task for most tensors
        tensor = Prepared(array, digest, key, coder, encoded, pruned)
        if encoded is None or pruned is None:
            return tensor
        return tensor._replace(encoded=tensor.compared(encoded, grid, 0))

    def memory(info: TensorInfo) -> int:
        return info.nbytes if info.name in source.bundles else copied_bytes(source.original, info)

    def prepare_run(run: Sequence[TensorInfo]) -> list[Prepared]:
        return [prepare(info) for info in run]

    prepared_runs = workers.in_order(
        prepare_run,
        runs(source.tensors, lambda info: info.nbytes, _RUN_BYTES, _RUN_TENSORS),
        small=lambda run: all(info.nbytes < _SMALL_TENSOR for info in run),
        prefetch=_RUNS_AHEAD,
        size=lambda run: sum(memory(info) for info in run),
        memory_budget=ROOM,
    )
    for info, prepared in (pair for pairs in starmap(zip, prepared_runs) for pair in pairs):
        grid, first = grids[info.name], info.name
        if info.name not in source.bundles:  # which may equal a tensor, but never are one
            first = first_with.setdefault(prepared.key, info.name)
        if first != info.name:
            data = prepared.array.reshape(-1).view(np.uint8)
            if are_equal(source.original, first, info.name, data):
                yield ChunkJob(info, grid, prepared, -1, same_as=first)
                continue
        for index in range(grid.count):
            yield ChunkJob(info, grid, prepared, index)


def copied_bytes(source: Checkpoint, info: TensorInfo) -> int:
    """Return the memory that reading a tensor takes; 0 for a view of its file."""
    pruned = isinstance(source, PrunedCheckpoint) and source.is_selected(info.name)
    return info.nbytes if pruned or source.copies else 0


def are_equal(source: Checkpoint, first: str, name: str, data: np.ndarray) -> bool:
    """Return whether two tensors have equal bits, before pruning and after.

    `data` are the bytes of the second.
    """
    if isinstance(source, PrunedCheckpoint):
        if source.is_selected(first) != source.is_selected(name):
            return False
        before = source.original.read
        if not np.array_equal(before(first), before(name)):
            return False
    return np.array_equal(source.read(first), data)


def _key(
    info: TensorInfo, plan: TensorPlan | None, digest: str, pruned: PrunedTensor | None
) -> Key:
    chosen = (plan.tree.text, plan.bound) if plan and plan.tree else ("", None)
    return info.dtype, info.nbytes, *chosen, None if pruned is None else pruned.record, digest
