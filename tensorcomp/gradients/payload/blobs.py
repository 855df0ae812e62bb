"""Gradients as the blobs of the file format: the same trees, chunks, checksums and bytes.

A blob is what a compressed checkpoint holds for a tensor whose record names one tree, and no
fallback: gradients are finite when they get here, and a wire-capable tree takes all of those.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import xxhash

from tensorcomp.codecs.base import Codec, Transform
from tensorcomp.codecs.text import parse_tree
from tensorcomp.codecs.tree import Node, join
from tensorcomp.container.blob import Blob, blob_index
from tensorcomp.container.chunk_coder import ChunkCoder
from tensorcomp.container.chunk_grid import CHUNK_ELEMENTS, ChunkGrid, chunk_grid
from tensorcomp.dtypes import dtype_name
from tensorcomp.errors import CodecError, FormatError, NotRepresentable
from tensorcomp.gradients.base import GradientSpec, Payload
from tensorcomp.gradients.payload.decoded import (
    DecodedGradient,
    DenseGradient,
    EmptyGradient,
    SparseGradient,
)
from tensorcomp.gradients.payload.sparse_blobs import encode_sparse, is_sparse, receive_sparse
from tensorcomp.planning.lossless import sample_rows

_COMPRESSED = ("float32", "float64", "float16", "bfloat16")


def tree_blob(tree: Node | str, gradient: np.ndarray, spec: GradientSpec) -> Payload:
    """Compress a gradient by a tree.

    Parameters
    ----------
    tree : Node or str
    gradient : numpy.ndarray
        Of the spec's dtype and number of elements, all of them finite, C-contiguous.
    spec : GradientSpec

    Returns
    -------
    Payload
        With `Payload.decoded`.
    """
    node = parse_tree(tree) if isinstance(tree, str) else tree
    grid = grid_of(spec.shape, spec.dtype)
    array = gradient.reshape(grid.shape)
    if is_sparse(node):
        positions = node.codec.positions(array)  # type: ignore[attr-defined]
        return sparse_blob(node, array, positions, spec)
    coder = _coder(node, array, grid)
    bounds = [grid.bounds(index) for index in range(grid.count)]
    roots: Sequence[Codec] = node.codec.per_chunk(array, bounds)
    payloads = []
    decoded = np.empty(grid.shape, spec.dtype)
    for index, (start, stop) in enumerate(bounds):
        root = Node(roots[index], node.children)
        payload = join(coder.encode(array[start:stop], root))
        coder.decode(np.frombuffer(payload, np.uint8), grid.spec(index), decoded[start:stop])
        payloads.append(payload)
    return Payload(pack_blob(coder, payloads), spec, DenseGradient(decoded.reshape(-1)))


def sparse_blob(
    node: Node, gradient: np.ndarray, positions: np.ndarray, spec: GradientSpec
) -> Payload:
    """Compress the elements of a gradient that somebody has selected, by a sparse tree.

    Parameters
    ----------
    node : Node
        Its root has a mask and values (see `sparse_blobs.is_sparse`); it selects nothing itself.
    gradient : numpy.ndarray
        As for `tree_blob`.
    positions : numpy.ndarray
        Flat indices of what is sent (k,), int64, ascending.
    spec : GradientSpec
    """
    grid = grid_of(spec.shape, spec.dtype)
    flat = gradient.reshape(-1)
    row = grid.row_elements
    payloads, values, places = [], [], []
    for index in range(grid.count):
        start, stop = (row * bound for bound in grid.bounds(index))
        first, last = np.searchsorted(positions, (start, stop)) if grid.count > 1 else (0, None)
        coded, sent = encode_sparse(
            node, flat[start:stop], positions[first:last] - start, grid.spec(index)
        )
        payloads.append(coded)
        places.append(sent.positions + start)
        values.append(sent.values)
    sent = SparseGradient(_joined(places), _joined(values))
    return Payload(pack_blob(ChunkCoder.alone((node,)), payloads), spec, sent)


def receive_blob(tree: Node | str, payload: Payload) -> DecodedGradient:
    """Return what a payload decodes to.

    Raises
    ------
    CodecError
        If it is damaged.
    """
    if not payload.data:
        return EmptyGradient()
    node = parse_tree(tree) if isinstance(tree, str) else tree
    grid = grid_of(payload.spec.shape, payload.spec.dtype)
    data = np.frombuffer(payload.data, np.uint8)
    try:
        blob = Blob.open(data, grid.count, payload.spec.name)
        chunks = [blob.payload(index) for index in range(grid.count)]
        shared = blob.shared()
    except FormatError as error:
        raise CodecError(str(error)) from error
    if is_sparse(node):
        found = [
            receive_sparse(node, chunk, grid.spec(index)) for index, chunk in enumerate(chunks)
        ]
        rows = [grid.bounds(index)[0] * grid.row_elements for index in range(grid.count)]
        return SparseGradient(
            _joined([sent.positions + start for sent, start in zip(found, rows, strict=True)]),
            _joined([sent.values for sent in found]),
        )
    coder = ChunkCoder.unpack((node,), shared)
    out = np.empty(grid.shape, payload.spec.dtype)
    for index, chunk in enumerate(chunks):
        start, stop = grid.bounds(index)
        coder.decode(chunk, grid.spec(index), out[start:stop])
    return DenseGradient(out.reshape(-1))


@functools.lru_cache(maxsize=4096)
def grid_of(shape: tuple[int, ...], dtype: np.dtype) -> ChunkGrid:
    """Return how a gradient is cut into chunks: as the tensor of a checkpoint is.

    Raises
    ------
    FormatError
        If the dtype is no float type that the file format has.
    """
    if dtype.name not in _COMPRESSED:
        raise FormatError(f"gradients of {dtype} cannot be compressed; cast them to float32")
    return chunk_grid(
        dtype_name(dtype), shape, int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    )


def pack_blob(coder: ChunkCoder, payloads: Sequence[bytes]) -> bytes:
    """Return the blob of the payloads of a tensor's chunks."""
    shared = coder.pack() if len(payloads) > 1 else b""
    sums = [(len(payload), xxhash.xxh3_64_intdigest(payload)) for payload in payloads]
    return b"".join([shared, *payloads, blob_index(shared, sums)])


def _coder(node: Node, array: np.ndarray, grid: ChunkGrid) -> ChunkCoder:
    if grid.count == 1 or not isinstance(node.codec, Transform):
        return ChunkCoder.alone((node,))
    return learned(node, sample_rows(array, CHUNK_ELEMENTS))


def learned(node: Node, sample: np.ndarray) -> ChunkCoder:
    """Return the coder of a tensor of several chunks, which has learned from a sample of its rows.

    A tree that cannot represent the sample learns nothing: such chunks are sent as they are.
    """
    try:
        return ChunkCoder.learn((node,), sample)
    except NotRepresentable:
        return ChunkCoder.alone((node,))


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
