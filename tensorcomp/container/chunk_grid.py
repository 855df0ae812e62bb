"""Cut tensors into chunks of whole rows."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tensorcomp.codecs.base import ArraySpec
from tensorcomp.dtypes import numpy_dtype

CHUNK_ELEMENTS = 1 << 20  # a megabyte of exponents: second-level cache, and enough for any table
MAX_CHUNK_ELEMENTS = 1 << 22
_MAX_AXES = 8  # a tensor of more is seen as a matrix: NumPy's own limit differs between versions


@dataclass(frozen=True)
class ChunkGrid:
    """Partition of a tensor into chunks of whole rows, or of elements.

    Parameters
    ----------
    shape : tuple of int
        The array that codecs see: the tensor's shape, or (elements,) where a row is too long.
    dtype : numpy.dtype
    chunk : int
        Rows of a chunk, or its elements where `shape` has one axis.
    stored : str
        Name of the tensor's own type, if it is cut as bytes since NumPy lacks it.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    chunk: int
    stored: str = ""

    @property
    def count(self) -> int:
        """Chunks; one for a tensor without elements."""
        rows = self.shape[0]
        return 1 if rows <= self.chunk else -(-rows // self.chunk)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tensor."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def row_elements(self) -> int:
        """Elements of one step along the first axis."""
        return math.prod(self.shape[1:])

    @property
    def columns(self) -> int:
        """Elements of a row whose error is measured apart; 0 where there are no rows."""
        return self.row_elements if len(self.shape) > 1 else 0

    def bounds(self, index: int) -> tuple[int, int]:
        """Return where chunk `index` starts and stops along the first axis."""
        start = index * self.chunk
        return start, min(start + self.chunk, self.shape[0])

    def chunks(self) -> Iterator[tuple[int, int, int]]:
        """Yield (chunk, start, stop) along the first axis."""
        for index in range(self.count):
            yield index, *self.bounds(index)

    def chunks_between(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield (chunk, start, stop) of the parts that hold a range of rows."""
        while begin < end:
            index = begin // self.chunk
            stop = min((index + 1) * self.chunk, end)
            yield index, begin, stop
            begin = stop

    def spec(self, index: int) -> ArraySpec:
        """Return the spec of chunk `index`."""
        start, stop = self.bounds(index)
        return ArraySpec((stop - start, *self.shape[1:]), self.dtype)


@functools.lru_cache(maxsize=1024)  # a model has many tensors of one shape
def chunk_grid(
    dtype: str, shape: tuple[int, ...], nbytes: int, elements: int = CHUNK_ELEMENTS
) -> ChunkGrid:
    """Return the partition of a tensor into chunks of at most `elements`.

    A type that NumPy lacks is cut as bytes; booleans are bytes too, since a file may hold other
    values than 0 and 1; complex numbers are pairs of floats.
    """
    numpy_type = numpy_dtype(dtype)
    if numpy_type is None:
        return ChunkGrid((nbytes,), np.dtype(np.uint8), elements, dtype)
    if numpy_type.kind == "b":
        numpy_type = np.dtype(np.uint8)
    elif numpy_type.kind == "c":
        numpy_type = np.dtype(f"<f{numpy_type.itemsize // 2}")
        shape = (*shape, 2)
    total = math.prod(shape)
    row = math.prod(shape[1:])
    if len(shape) > 1 and 0 < row <= elements:
        axes = shape if len(shape) <= _MAX_AXES else (shape[0], row)
        return ChunkGrid(axes, numpy_type, elements // row)
    return ChunkGrid((total,), numpy_type, elements)
