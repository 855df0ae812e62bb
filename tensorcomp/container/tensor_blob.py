"""Encode tensors chunk by chunk into blobs; decode them, or rows of them.

Files, slices, comparisons, benchmarks and gradients all go through the loops of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn, Protocol

import numpy as np
import xxhash

from tensorcomp.codecs.base import Codec
from tensorcomp.codecs.payload import join
from tensorcomp.codecs.tree import Node
from tensorcomp.container.blob import Blob, ChunkCoder, blob_index
from tensorcomp.container.chunk_grid import ChunkGrid
from tensorcomp.container.records import DIGEST_DIGITS, TensorRecord
from tensorcomp.errors import (
    CodecError,
    FormatError,
    PlanError,
    TensorcompError,
    VerificationError,
)
from tensorcomp.io.memory_pages import release

_LARGE = 1 << 18  # bytes of a payload whose pages are let go of once it is decoded


class ChunkedTensor(Protocol):
    """A tensor of which single chunks can be decoded."""

    @property
    def grid(self) -> ChunkGrid:
        """Grid by which the tensor is cut into chunks."""

    def decode_chunk(self, index: int, out: np.ndarray | None = None) -> np.ndarray:
        """Return a chunk, decoded into `out` if given."""


def decode_tensor(tensor: ChunkedTensor, out: np.ndarray | None = None) -> np.ndarray:
    """Decode a whole tensor, into `out` if given; see `decode_rows`."""
    return decode_rows(tensor, 0, tensor.grid.shape[0], out)


def decode_rows(
    tensor: ChunkedTensor, begin: int, end: int, out: np.ndarray | None = None
) -> np.ndarray:
    """Decode rows `begin` to `end` of a tensor, and only their chunks.

    Parameters
    ----------
    tensor : ChunkedTensor
    begin, end : int
        Along the first axis of ``tensor.grid``.
    out : numpy.ndarray, optional
        Filled and returned: (end − begin, …) of the grid's dtype.

    Raises
    ------
    FormatError, CodecError
        If a chunk is damaged.
    """
    grid = tensor.grid
    if out is None and grid.count == 1:
        return tensor.decode_chunk(0)[begin:end]
    if out is None and begin < end and (begin, end) == grid.bounds(begin // grid.chunk):
        return tensor.decode_chunk(begin // grid.chunk)  # nothing is held while bases are decoded
    if out is None:
        out = np.empty((end - begin, *grid.shape[1:]), grid.dtype)
    if begin == end == grid.shape[0] == 0:  # its one chunk, without elements, is checked as well
        return tensor.decode_chunk(0, out)
    for index, start, stop in grid.chunks_between(begin, end):
        first, last = grid.bounds(index)
        rows = out[start - begin : stop - begin]
        if (start, stop) == (first, last):
            tensor.decode_chunk(index, rows)
        else:
            rows[...] = tensor.decode_chunk(index)[start - first : stop - first]
    return out


class EncodedTensor(NamedTuple):
    """Data shared by the chunks of a tensor, and the payload of each."""

    shared: bytes
    payloads: Sequence[bytes]

    def to_bytes(self) -> bytes:
        """Return the blob: what chunks share, payloads and index."""
        sums = [(len(data), xxhash.xxh3_64_intdigest(data)) for data in self.payloads]
        return b"".join([self.shared, *self.payloads, blob_index(self.shared, sums)])


def encode_tensor(
    array: np.ndarray, coder: ChunkCoder, grid: ChunkGrid, roots: Sequence[Node] = ()
) -> EncodedTensor:
    """Encode a tensor in memory.

    A root, if given for each chunk, takes the place of the coder's first tree.
    """
    payloads = [
        join(coder.encode(array[start:stop], roots[index] if roots else None))
        for index, start, stop in grid.chunks()
    ]
    return EncodedTensor(coder.pack() if grid.count > 1 else b"", payloads)


def chunk_roots(tree: Node, array: np.ndarray, grid: ChunkGrid) -> tuple[Node, ...]:
    """Return the tree of each chunk; nothing if it is the same for all.

    A codec that must see the whole tensor, to select its largest elements say, gives each chunk
    a codec of its own.
    """
    bounds = [(start, stop) for _, start, stop in grid.chunks()]
    codecs: Sequence[Codec] = tree.codec.per_chunk(array, bounds)
    roots = tuple(Node(codec, tree.children) for codec in codecs)
    return roots if any(root != tree for root in roots) else ()


@dataclass(eq=False, slots=True)
class TensorBlob:
    """Blob opened for decoding, in memory or of a file.

    That of a file has a record, and `where` is the file's name; `mapped` says that `blob` is a view
    of its pages, which are let go once they are decoded. `reference` returns rows of what chunks
    are coded against.
    """

    grid: ChunkGrid
    blob: Blob
    coder: ChunkCoder
    record: TensorRecord | None = None
    where: str = ""
    mapped: bool = False
    reference: Callable[[int, int], np.ndarray] | None = None

    @classmethod
    def open(
        cls, data: np.ndarray, trees: tuple[Node, ...], grid: ChunkGrid, name: str
    ) -> TensorBlob:
        """Open a blob in memory, such as a gradient's payload.

        Parameters
        ----------
        data : numpy.ndarray
            The blob (n,), uint8.
        trees : tuple of Node
            One, or two with the fallback.
        grid : ChunkGrid
        name : str
            For error messages.

        Raises
        ------
        CodecError
            If its sizes do not add up, or what its chunks share is damaged.
        """
        try:
            blob = Blob.open(data, grid.count, name)
            shared = blob.shared()
        except FormatError as error:
            raise CodecError(error.message, tensor=error.tensor) from error
        coder = ChunkCoder.unpack(trees, shared) if shared else ChunkCoder.alone(trees)
        return cls(grid, blob, coder)

    @property
    def lossless(self) -> bool:
        """Whether the trees keep every bit."""
        return all(tree.lossless for tree in self.coder.trees)

    def decode_chunk(self, index: int, out: np.ndarray | None = None) -> np.ndarray:
        """Return chunk `index`, decoded into `out` if given.

        Raises
        ------
        FormatError
            If the chunk is damaged.
        CodecError
            If it is, and no file holds it.
        """
        try:
            payload = self.blob.payload(index)
            rows = None if self.reference is None else self.reference(*self.grid.bounds(index))
            out = self.coder.decode(payload, self.grid.spec(index), out, rows)
        except TensorcompError as error:
            if self.record is None:
                raise CodecError(error.message, tensor=error.tensor, chunk=index) from error
            raise_located(error, self.where, self.record.name, index)
        if self.mapped and payload.nbytes >= _LARGE:
            release(payload)
        return out

    def check_digest(self, found: str) -> None:
        """Compare the digest of all decoded bytes with the manifest's.

        Raises `VerificationError` if they differ.
        """
        assert self.record is not None
        if found[:DIGEST_DIGITS] != self.record.digest:
            message, tensor = "decodes to other bytes than were compressed", self.record.name
            raise VerificationError(message, path=self.where, tensor=tensor)


@dataclass(eq=False, slots=True)
class BundleMember:
    """Tensor in a bundle, decoded like a `TensorBlob` of one chunk.

    Its bytes are those that `take` returns, not to be changed. Its digest is the bundle's, which is
    checked whenever that is decoded.
    """

    record: TensorRecord
    grid: ChunkGrid
    take: Callable[[], np.ndarray]
    lossless: bool

    def decode_chunk(self, index: int, out: np.ndarray | None = None) -> np.ndarray:
        """Return the tensor, its only chunk, decoded into `out` if given."""
        assert index == 0
        decoded = self.take().view(self.grid.dtype).reshape(self.grid.shape)
        if out is None:
            return decoded.copy()
        out[...] = decoded
        return out

    def check_digest(self, found: str) -> None:
        """Do nothing: the bundle's digest was right."""


def checked_bytes(
    tensor: TensorBlob | BundleMember, chunks: Iterable[np.ndarray] | None = None
) -> Iterator[np.ndarray]:
    """Yield the bytes of each chunk, decoded if need be; check the digest last.

    Raises `FormatError` or `VerificationError` if the tensor is damaged.
    """
    digest = xxhash.xxh3_128()
    if chunks is None:
        chunks = map(tensor.decode_chunk, range(tensor.grid.count))
    for chunk in chunks:
        data = chunk.reshape(-1).view(np.uint8)
        digest.update(data)
        yield data
    tensor.check_digest(digest.hexdigest())


def decode_checked(tensor: TensorBlob | BundleMember) -> np.ndarray:
    """Return all bytes of a tensor, flat uint8; see `checked_bytes`."""
    parts = list(checked_bytes(tensor))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def raise_located(
    error: TensorcompError, where: str, name: str, chunk: int | None = None
) -> NoReturn:
    """Raise an error with the file, tensor and chunk where it was found."""
    if isinstance(error, (CodecError, PlanError)):
        raise FormatError(error.message, path=where, tensor=name, chunk=chunk) from error
    raise error.at(path=where, tensor=name, chunk=chunk)
