"""The bytes of one stored tensor: what its chunks share, their payloads, an index.

::

    what the chunks share, then the payloads, back to back
    uint64  bytes of what the chunks share        uint64  its XXH3-64
    then for each chunk
    uint64  bytes of its payload                  uint64  its XXH3-64

A blob of a single chunk shares nothing, and its index is the payload's XXH3-64 alone (in format 1,
it had an index like all others).

The index comes last so that a blob can be written as a stream. How many chunks there are follows
from the tensor's shape, so it cannot be claimed.
"""

from __future__ import annotations

import functools
import math
import struct
from dataclasses import dataclass

import numpy as np
import xxhash

from tensorcomp.codecs.base import ArraySpec
from tensorcomp.container.manifest import FORMAT_VERSION
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.errors import FormatError

CHUNK_ELEMENTS = 1 << 20  # a megabyte of exponents: second-level cache, and enough for any table
MAX_CHUNK_ELEMENTS = 1 << 22
_MOST_AXES = 8  # a tensor of more is seen as a matrix: NumPy's own limit differs between versions
_ENTRY = struct.Struct("<QQ")
_CHECKSUM = struct.Struct("<Q")
_NOTHING = (0, 0, xxhash.xxh3_64_intdigest(b""))  # what a short index, and no other, has first


@dataclass(frozen=True)
class ChunkGrid:
    """How a tensor is cut into chunks: runs of whole rows, or of elements where a row is too long.

    Parameters
    ----------
    shape : tuple of int
        The array that codecs see: the tensor's shape, or (elements,) where a row is too long.
    dtype : numpy.dtype
    chunk : int
        Rows of a chunk, or its elements where `shape` has one axis.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    chunk: int

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

    def bounds(self, index: int) -> tuple[int, int]:
        """Return where chunk `index` starts and stops along the first axis."""
        start = index * self.chunk
        return start, min(start + self.chunk, self.shape[0])

    def spec(self, index: int) -> ArraySpec:
        """Return the spec of chunk `index`."""
        start, stop = self.bounds(index)
        return ArraySpec((stop - start, *self.shape[1:]), self.dtype)


@functools.lru_cache(maxsize=1024)  # a model has many tensors of one shape
def chunk_grid(
    dtype: str, shape: tuple[int, ...], nbytes: int, elements: int = CHUNK_ELEMENTS
) -> ChunkGrid:
    """Return how a tensor is cut into chunks of at most `elements`.

    A type that NumPy lacks is cut as bytes; booleans are bytes too, since a file may hold other
    values than 0 and 1; complex numbers are pairs of floats.
    """
    numpy_type = numpy_dtype(dtype)
    if numpy_type is None:
        return ChunkGrid((nbytes,), np.dtype(np.uint8), elements)
    if numpy_type.kind == "b":
        numpy_type = np.dtype(np.uint8)
    elif numpy_type.kind == "c":
        numpy_type = np.dtype(f"<f{numpy_type.itemsize // 2}")
        shape = (*shape, 2)
    total = math.prod(shape)
    row = math.prod(shape[1:])
    if len(shape) > 1 and 0 < row <= elements:
        axes = shape if len(shape) <= _MOST_AXES else (shape[0], row)
        return ChunkGrid(axes, numpy_type, elements // row)
    return ChunkGrid((total,), numpy_type, elements)


def blob_index(shared: bytes, payloads: list[tuple[int, int]]) -> bytes:
    """Return a blob's index: `payloads` are the size and checksum of each chunk.

    Raises
    ------
    ValueError
        If a single chunk shares something with itself.
    """
    if len(payloads) == 1:
        if shared:
            raise ValueError("a blob of one chunk shares nothing")
        return _CHECKSUM.pack(payloads[0][1])
    entries = [(len(shared), xxhash.xxh3_64_intdigest(shared)), *payloads]
    return b"".join(_ENTRY.pack(*entry) for entry in entries)


def index_bytes(chunks: int, version: int = FORMAT_VERSION) -> int:
    """Return the bytes of the index of a blob of so many chunks in a format version."""
    return _CHECKSUM.size if is_short(chunks, version) else _ENTRY.size * (chunks + 1)


def is_short(chunks: int, version: int = FORMAT_VERSION) -> bool:
    """Return whether the index of such a blob is a checksum and nothing else."""
    return chunks == 1 and version > 1


@dataclass(slots=True)  # as `TensorRecord`
class Blob:
    """A blob opened for reading: its index is checked, its payloads are views; it never changes.

    Parameters
    ----------
    data : numpy.ndarray
        The blob, flat uint8.
    parts : tuple of (int, int, int)
        Where what is shared, and then each payload, starts and stops, and its checksum.
    name : str
        The tensor's name, for error messages.
    """

    data: np.ndarray
    parts: tuple[tuple[int, int, int], ...]
    name: str

    @classmethod
    def open(cls, data: np.ndarray, chunks: int, name: str, version: int = FORMAT_VERSION) -> Blob:
        """Check a blob's index, as a format version has it, against its size.

        Raises
        ------
        FormatError
            If the parts' sizes do not add up to the blob's.
        """
        end = data.size - index_bytes(chunks, version)
        if end < 0:
            raise FormatError(
                f"tensor {name!r}: {data.size} bytes cannot hold an index of {chunks} chunks"
            )
        if is_short(chunks, version):
            return cls(data, (_NOTHING, (0, end, _CHECKSUM.unpack_from(data, end)[0])), name)
        parts = []
        start = 0
        for size, checksum in _ENTRY.iter_unpack(data[end:].tobytes()):
            parts.append((start, start + size, checksum))
            start += size
        if start != end:
            raise FormatError(
                f"tensor {name!r}: its chunks take {start} bytes, its blob has {end} for them"
            )
        return cls(data, tuple(parts), name)

    def shared(self) -> bytes:
        """Return what the chunks share.

        Raises
        ------
        FormatError
            If its checksum is wrong.
        """
        return b"" if self.parts[0] is _NOTHING else self._checked(0).tobytes()

    def payload(self, chunk: int) -> np.ndarray:
        """Return the payload of a chunk, flat uint8.

        Raises
        ------
        FormatError
            If its checksum is wrong.
        """
        return self._checked(chunk + 1)

    def _checked(self, part: int) -> np.ndarray:
        start, stop, checksum = self.parts[part]
        data = self.data[start:stop]
        if xxhash.xxh3_64_intdigest(data) != checksum:
            which = f"chunk {part - 1}" if part else "what its chunks share"
            raise FormatError(
                f"tensor {self.name!r}: the checksum of {which} is wrong; it is damaged"
            )
        return data
