"""Encode gradients as the blobs of the file format.

A blob is what a compressed checkpoint holds for a tensor whose record names one tree, and no
fallback: gradients are finite when they get here, and a wire-capable tree takes all of those.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from tensorcomp.codecs.base import ArraySpec, Pieces, Transform
from tensorcomp.codecs.bit_views import readable
from tensorcomp.codecs.payload import encode_parts, encode_seen, join, raw_payload
from tensorcomp.codecs.tree import Node
from tensorcomp.container.blob import ChunkCoder
from tensorcomp.container.chunk_grid import CHUNK_ELEMENTS, ChunkGrid, chunk_grid
from tensorcomp.container.tensor_blob import EncodedTensor, chunk_roots
from tensorcomp.dtypes import dtype_name
from tensorcomp.errors import FormatError, NotRepresentable
from tensorcomp.gradients.base import GradientSpec, Payload
from tensorcomp.gradients.payload.arrays import host, move
from tensorcomp.gradients.payload.decoded import DenseGradient, SparseGradient
from tensorcomp.gradients.payload.sparse_blobs import (
    encode_mask,
    encode_selected,
    is_sparse,
    within,
)
from tensorcomp.planning.lossless import sample_rows

_COMPRESSED = ("float32", "float64", "float16", "bfloat16")


def host_blob(node: Node, array: np.ndarray, grid: ChunkGrid, spec: GradientSpec) -> Payload:
    """Compress an array of the grid's shape by a codec tree."""
    if is_sparse(node):
        positions = node.codec.positions(array)  # type: ignore[attr-defined]
        return sparse_blob(node, array, positions, spec)
    coder = coder_of(node, array, grid)
    roots = chunk_roots(node, array, grid)

    def code(index: int, start: int, chunk: np.ndarray, out: np.ndarray) -> Pieces:
        root = roots[index] if roots else node
        pieces, known = encode_seen(root, chunk, coder.shared[0], out)
        if known is not out:
            out[...] = known
        return pieces

    return chunked_blob(array, np.empty(grid.shape, spec.dtype), grid, spec, code, coder)


def chunked_blob(
    array: Any,
    decoded: Any,
    grid: ChunkGrid,
    spec: GradientSpec,
    code: Callable[[int, int, Any, Any], Pieces],
    coder: ChunkCoder | None = None,
) -> Payload:
    """Compress all elements of a gradient chunk by chunk.

    Parameters
    ----------
    array : numpy.ndarray or torch.Tensor
        Of the grid's shape.
    decoded : numpy.ndarray or torch.Tensor
        Memory of the same shape and type for what the payload decodes to.
    grid : ChunkGrid
    spec : GradientSpec
    code : callable
        Returns the bytes of a chunk, given its index, where it starts along the first axis, the
        chunk, and memory that it fills with what they decode to. Where it returns none, or raises
        `NotRepresentable`, the chunk is sent as it is.
    coder : ChunkCoder, optional
        Holds what several chunks share.
    """
    payloads = []
    for index, start, stop in grid.chunks():
        chunk, out = array[start:stop], decoded[start:stop]
        try:
            pieces = code(index, start, chunk, out)
        except NotRepresentable:
            pieces = []
        if not pieces:
            out[...] = chunk
            pieces = raw_payload(readable(host(chunk)))
        payloads.append(join(pieces))
    shared = coder.pack() if coder is not None and grid.count > 1 else b""
    data = EncodedTensor(shared, payloads).to_bytes()
    return Payload(data, spec, DenseGradient(decoded.reshape(-1)))


def parts_blob(
    node: Node,
    gradient: Any,
    spec: GradientSpec,
    parts_of: Callable[[np.ndarray, int], dict[str, np.ndarray]],
) -> Payload:
    """Compress a gradient by parts that a function computes.

    The function replaces the root's codec.

    Parameters
    ----------
    node : Node
        Decodes the parts; shares nothing between chunks, and its children are lossless.
    gradient : numpy.ndarray or torch.Tensor
        As for `tree_blob`.
    spec : GradientSpec
    parts_of : callable
        Returns the parts of a chunk, given the chunk and where it starts along the first axis;
        raises `NotRepresentable` where the chunk is sent as it is.
    """
    codec, grid = cast(Transform, node.codec), grid_of(spec.shape, spec.dtype)
    array = host(gradient.reshape(grid.shape))

    def code(index: int, start: int, chunk: np.ndarray, out: np.ndarray) -> Pieces:
        parts = parts_of(chunk, start)
        coded = encode_parts(node, parts, grid.spec(index), node.shares_nothing)
        if pieces := within(grid.spec(index), coded):
            codec.decode(parts, out)
        return pieces

    payload = chunked_blob(array, np.empty(grid.shape, spec.dtype), grid, spec, code)
    return placed(payload, gradient)


def placed(payload: Payload, gradient: Any) -> Payload:
    """Move what a payload decodes to to where the gradient is."""
    if isinstance(gradient, np.ndarray):
        return payload
    return replace(payload, decoded=move(cast("Any", payload.decoded), gradient.device))


def sparse_blob(node: Node, gradient: Any, positions: Any, spec: GradientSpec) -> Payload:
    """Compress selected elements of a gradient by a sparse codec tree.

    Parameters
    ----------
    node : Node
        Its root has a mask and values (see `sparse_blobs.is_sparse`); it selects nothing itself.
    gradient : numpy.ndarray or torch.Tensor
        As for `tree_blob`. Of a tensor only what is selected leaves its device.
    positions : numpy.ndarray or torch.Tensor
        Flat indices of what is sent (k,), int64, ascending.
    spec : GradientSpec
    """
    flat = gradient.reshape(-1)
    places = host(positions)

    def where(kept: slice, start: int, chunk: ArraySpec) -> Pieces:
        return encode_mask(node.children[0][1], places[kept] - start, chunk)

    def whole(kept: slice, start: int, size: int) -> np.ndarray:
        return host(flat[start : start + size]).copy()

    payload = selected_blob(node, places, host(flat[positions]), spec, where, whole)
    return placed(payload, flat)


def selected_blob(
    node: Node,
    places: np.ndarray,
    values: np.ndarray,
    spec: GradientSpec,
    where: Callable[[slice, int, ArraySpec], Pieces],
    whole: Callable[[slice, int, int], np.ndarray],
) -> Payload:
    """Compress selected elements chunk by chunk.

    Parameters
    ----------
    node : Node
        Its root has two parts: which elements are selected, and their values.
    places, values : numpy.ndarray
        Flat indices (k,), int64, ascending, and the elements there (k,).
    spec : GradientSpec
    where : callable
        Returns the bytes of a chunk's first part, given which of the k elements are in the chunk,
        where it starts, and its spec.
    whole : callable
        Returns all elements of a chunk, given the same but its size in place of its spec: they are
        sent where they take fewer bytes.
    """
    grid = grid_of(spec.shape, spec.dtype)
    payloads, found = [], []
    for index, row, _ in grid.chunks():
        start, chunk = row * grid.row_elements, grid.spec(index)
        bounds = (start, start + chunk.size)
        kept = slice(*np.searchsorted(places, bounds)) if grid.count > 1 else slice(None)
        pieces, sent = encode_selected(node, where(kept, start, chunk), values[kept], chunk)
        own = places[kept]
        if not pieces:
            sent, own = whole(kept, start, chunk.size), np.arange(*bounds)
            pieces = raw_payload(readable(sent))
        payloads.append(join(pieces))
        found.append(SparseGradient(own, sent))
    return Payload(EncodedTensor(b"", payloads).to_bytes(), spec, joined(found))


@functools.lru_cache(maxsize=4096)
def grid_of(shape: tuple[int, ...], dtype: np.dtype) -> ChunkGrid:
    """Return the chunk grid of a gradient, as of a checkpoint's tensor.

    Raises
    ------
    FormatError
        If the file format lacks the dtype as a float type.
    """
    if dtype.name not in _COMPRESSED:
        raise FormatError(f"expected gradients of floats, got {dtype}; cast them to float32")
    return chunk_grid(
        dtype_name(dtype), shape, int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    )


def coder_of(node: Node, array: Any, grid: ChunkGrid) -> ChunkCoder:
    """Fit a chunk coder to a sample of a gradient's rows.

    A tree that cannot represent the sample learns nothing: such chunks are sent as they are.
    """
    if grid.count > 1 and isinstance(node.codec, Transform):
        try:
            return ChunkCoder.learn((node,), host(sample_rows(array, CHUNK_ELEMENTS)))
        except NotRepresentable:
            pass
    return ChunkCoder.alone((node,))


def joined(chunks: Sequence[SparseGradient]) -> SparseGradient:
    """Join what chunks hold."""
    if len(chunks) == 1:
        return chunks[0]
    return SparseGradient(
        np.concatenate([chunk.positions for chunk in chunks]),
        np.concatenate([chunk.values for chunk in chunks]),
    )
