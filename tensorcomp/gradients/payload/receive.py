"""Decode gradients from the blobs of the file format."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorcomp.codecs.sparse.randomk import RandomK
from tensorcomp.codecs.text import format_tree, parse_tree
from tensorcomp.codecs.tree import Node
from tensorcomp.container.blob import Blob
from tensorcomp.container.chunk_grid import ChunkGrid
from tensorcomp.container.tensor_blob import TensorBlob, decode_tensor
from tensorcomp.errors import CodecError, FormatError
from tensorcomp.gradients.base import Payload
from tensorcomp.gradients.payload.blobs import grid_of, joined
from tensorcomp.gradients.payload.decoded import (
    DecodedGradient,
    DenseGradient,
    EmptyGradient,
    SparseGradient,
)
from tensorcomp.gradients.payload.sparse_blobs import is_sparse, receive_sparse


def receive_blob(tree: Node | str, payload: Payload) -> DecodedGradient:
    """Decode a payload.

    Raises
    ------
    CodecError
        If it is damaged.
    """
    if not payload.data:
        return EmptyGradient()
    node = parse_tree(tree) if isinstance(tree, str) else tree
    grid = grid_of(payload.spec.shape, payload.spec.dtype)
    if not (is_sparse(node) or isinstance(node.codec, RandomK)):
        data = np.frombuffer(payload.data, np.uint8)
        tensor = TensorBlob.open(data, (node,), grid, payload.spec.name)
        return DenseGradient(decode_tensor(tensor).reshape(-1))
    found = []
    _, chunks = open_payload(payload, grid)
    for (index, row, _), chunk in zip(grid.chunks(), chunks, strict=True):
        sent = receive_sparse(node, chunk, grid.spec(index))
        found.append(SparseGradient(sent.positions + row * grid.row_elements, sent.values))
    return joined(found)


class TreeCoded:
    """Decode payloads by a codec tree; a mixin of compressors.

    Attributes
    ----------
    tree : Node
        Of all payloads.
    """

    tree: Any

    def text(self) -> str:
        """Return the text of the tree."""
        return format_tree(self.tree)

    def receive(self, payload: Payload) -> DecodedGradient:
        """Decode a payload by the tree."""
        return receive_blob(self.tree, payload)


def open_payload(payload: Payload, grid: ChunkGrid) -> tuple[bytes, list[np.ndarray]]:
    """Open a payload: what chunks share, and their verified payloads.

    Raises
    ------
    CodecError
        If the payload is damaged.
    """
    try:
        blob = Blob.open(np.frombuffer(payload.data, np.uint8), grid.count, payload.spec.name)
        return blob.shared(), [blob.payload(index) for index in range(grid.count)]
    except FormatError as error:
        raise CodecError(error.message, tensor=error.tensor, chunk=error.chunk) from error
