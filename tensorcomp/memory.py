"""Tensors in memory as a source to compress, and decoded into memory."""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np

from tensorcomp.checkpoints.checkpoint import Recipe, TensorInfo
from tensorcomp.checkpoints.safetensors_header import build_header
from tensorcomp.container.reader import CompressedFile
from tensorcomp.dtypes import dtype_name, numpy_dtype
from tensorcomp.pipeline import Pipeline, Report
from tensorcomp.threads import Workers


class MemorySource:
    """NumPy arrays by name, in the order in which safetensors would store them.

    Parameters
    ----------
    tensors : mapping of str to numpy.ndarray
        Any strides and byte order.
    metadata : mapping of str to str, optional

    Raises
    ------
    TypeError
        If a dtype has no safetensors equal.
    """

    def __init__(
        self, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
    ) -> None:
        self._arrays = dict(tensors)
        infos = [
            TensorInfo(name, dtype_name(array.dtype), array.shape, array.nbytes)
            for name, array in self._arrays.items()
        ]
        # The library's order: widest types first, so that all are aligned, then by name.
        infos.sort(key=lambda info: (-self._arrays[info.name].itemsize, info.name))
        self.tensors = tuple(infos)
        self.aliases: dict[str, str] = {}
        self._metadata = dict(metadata) if metadata is not None else None
        self.nbytes = len(build_header(infos, metadata)) + sum(info.nbytes for info in infos)

    def read(self, name: str) -> np.ndarray:
        """Return a tensor's bytes, flat uint8; a view where it is contiguous."""
        array = self._arrays[name]
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        return np.ascontiguousarray(little).reshape(-1).view(np.uint8)

    def recipe(self) -> Recipe:
        """Return what a safetensors file of these tensors would need."""
        structure = {} if self._metadata is None else {"metadata": self._metadata}
        return Recipe("safetensors", structure)


def save_bytes(source: MemorySource, pipeline: Pipeline) -> tuple[bytes, Report]:
    """Compress tensors into bytes."""
    file = io.BytesIO()
    report = pipeline.write(source, file)
    return file.getvalue(), report


def load_arrays(file: CompressedFile, threads: int) -> dict[str, np.ndarray]:
    """Decode every tensor of a file, aliases included, into NumPy arrays.

    Tensors are views of one allocation, as those of a mapped safetensors file are: large pages
    serve it, and one fault serves many tensors.
    """
    opened = [file.open_tensor(n) for n, r in file.manifest.tensors.items() if r.same_as is None]
    starts = np.cumsum([0, *(-(-tensor.grid.nbytes // 64) * 64 for tensor in opened)])
    arena = np.empty(int(starts[-1]), np.uint8)
    stored: dict[str, np.ndarray] = {}
    jobs = []
    for tensor, start in zip(opened, starts.tolist(), strict=False):
        grid = tensor.grid
        flat = arena[start : start + grid.nbytes]
        whole = flat.view(grid.dtype).reshape(grid.shape)
        jobs += [(tensor, index, whole) for index in range(grid.count)]
        stored[tensor.record.name] = flat

    def run(job: tuple) -> None:
        tensor, index, whole = job
        start, stop = tensor.grid.bounds(index)
        tensor.decode_chunk(index, whole[start:stop])

    with Workers(threads) as workers:
        workers.map_all(run, jobs)
    arrays = {}
    for name, record in file.manifest.tensors.items():
        flat = stored[record.same_as or name]
        arrays[name] = as_array(flat, record.dtype, record.shape)
    for alias, name in file.manifest.aliases.items():
        arrays[alias] = arrays[name]
    return arrays


def as_array(flat: np.ndarray, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return a tensor's bytes as an array of its type; as bytes, where NumPy has no such type."""
    numpy_type = numpy_dtype(dtype)
    return flat if numpy_type is None else flat.view(numpy_type).reshape(shape)
