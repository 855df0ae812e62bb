"""Compress a gradient by a codec tree, where the gradient is."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorcomp.codecs.base import Pieces, Transform
from tensorcomp.codecs.payload import encode_seen
from tensorcomp.codecs.text import parse_tree
from tensorcomp.codecs.tree import Node
from tensorcomp.container.blob import ChunkCoder
from tensorcomp.container.chunk_grid import CHUNK_ELEMENTS, ChunkGrid
from tensorcomp.container.tensor_blob import chunk_roots
from tensorcomp.errors import NotRepresentable
from tensorcomp.gradients.base import GradientSpec, Payload
from tensorcomp.gradients.payload.arrays import host
from tensorcomp.gradients.payload.blobs import chunked_blob, grid_of, sparse_blob
from tensorcomp.gradients.payload.sparse_blobs import is_sparse
from tensorcomp.planning.lossless import sample_rows


def tree_blob(tree: Node | str, gradient: Any, spec: GradientSpec) -> Payload:
    """Compress a gradient by a codec tree, a tensor on its own device.

    Parameters
    ----------
    tree : Node or str
    gradient : numpy.ndarray or torch.Tensor
        Of the spec's dtype and number of elements, all of them finite, C-contiguous.
    spec : GradientSpec

    Returns
    -------
    Payload
        With `Payload.decoded`, where the gradient is.
    """
    node = parse_tree(tree) if isinstance(tree, str) else tree
    grid = grid_of(spec.shape, spec.dtype)
    array = gradient.reshape(grid.shape)
    if isinstance(array, np.ndarray):
        return host_blob(node, array, grid, spec)
    from tensorcomp.gradients.cuda.blobs import device_blob

    return device_blob(node, array, grid, spec)


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
