"""Read tensors of any checkpoint, compressed or not, by rows."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from tensorcomp.checkpoints.base import Checkpoint, TensorInfo
from tensorcomp.checkpoints.safetensors.file import Bytes, SafetensorsFile
from tensorcomp.container.chunk_grid import ChunkGrid, chunk_grid
from tensorcomp.container.records import TensorRecord
from tensorcomp.container.tensor_blob import ChunkedTensor


@runtime_checkable
class _Compressed(Protocol):
    """Checkpoint that is stored in chunks."""

    def open_tensor(self, name: str) -> ChunkedTensor:
        """Open a tensor for decoding by chunks."""

    def blob_bytes(self, name: str) -> int:
        """Return the bytes a tensor takes in the file."""


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


class PlainParts(NamedTuple):
    """Uncompressed tensor of which those chunks are read that are asked for."""

    grid: ChunkGrid
    data: Bytes

    def decode_chunk(self, index: int, out: np.ndarray | None = None) -> np.ndarray:
        """Return a chunk's values, copied into `out` if given."""
        start, stop = self.grid.bounds(index)
        row = self.grid.row_elements * self.grid.dtype.itemsize
        shape = (stop - start, *self.grid.shape[1:])
        values = self.data[start * row : stop * row].view(self.grid.dtype).reshape(shape)
        if out is None:
            return values
        out[...] = values
        return out


def open_tensor(checkpoint: Checkpoint, info: TensorInfo | TensorRecord) -> ChunkedTensor:
    """Return a tensor of any checkpoint, to be read by rows (see `decode_rows`)."""
    if isinstance(checkpoint, _Compressed):
        return checkpoint.open_tensor(info.name)
    grid = chunk_grid(info.dtype, info.shape, info.nbytes, info.nbytes + 1)
    if isinstance(checkpoint, SafetensorsFile) and checkpoint.remote and checkpoint.copies:
        parts = chunk_grid(info.dtype, info.shape, info.nbytes)
        return PlainParts(parts, checkpoint.parts(info.name))
    data = (
        checkpoint.read_private(info.name)
        if isinstance(checkpoint, SafetensorsFile)
        else checkpoint.read(info.name)
    )
    return PlainTensor(grid, data.view(grid.dtype).reshape(grid.shape))


def stored_bytes(checkpoint: Checkpoint, info: TensorInfo) -> int:
    """Return the bytes that a tensor takes in its file."""
    if isinstance(checkpoint, _Compressed):
        return checkpoint.blob_bytes(info.name)
    return info.nbytes
