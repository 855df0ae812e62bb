"""Encode gradients on their device; only coded parts go to the host.

The bytes are those of `payload.blobs`. Of a sparse tree the places and the values go to the host;
of `affine`, codes of a byte an element and a scale a group; of `sign`, a byte an element; of
`cast`, what it casts to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import torch

from tensorcomp.codecs.base import Codec, Pieces
from tensorcomp.codecs.payload import (
    decode,
    encode_parts,
    framed_parts,
    join,
)
from tensorcomp.codecs.quantize.groups import Groups
from tensorcomp.codecs.sparse.selection import kept_count
from tensorcomp.codecs.sparse.threshold import Threshold
from tensorcomp.codecs.sparse.topk import TopK
from tensorcomp.codecs.tree import Node
from tensorcomp.container.blob import CODED, ChunkCoder
from tensorcomp.container.chunk_grid import ChunkGrid
from tensorcomp.errors import NotRepresentable
from tensorcomp.gradients.base import GradientSpec, Payload
from tensorcomp.gradients.cuda.selection import largest_positions, positions_above
from tensorcomp.gradients.cuda.transforms import computes, parts_of, receive, restore
from tensorcomp.gradients.payload.arrays import host, move
from tensorcomp.gradients.payload.blobs import (
    chunked_blob,
    coder_of,
    grid_of,
    host_blob,
    placed,
    sparse_blob,
)
from tensorcomp.gradients.payload.decoded import DecodedGradient, DenseGradient
from tensorcomp.gradients.payload.receive import open_payload, receive_blob
from tensorcomp.gradients.payload.sparse_blobs import is_sparse, within


def computes_root(node: Node) -> bool:
    """Test whether the root of a tree is computed on devices."""
    selects = isinstance(node.codec, TopK | Threshold) and is_sparse(node)
    return selects or computes(node.codec)


def positions_of(codec: Codec, flat: torch.Tensor) -> torch.Tensor:
    """Select the flat indices that a sparse codec keeps, ascending."""
    if isinstance(codec, TopK):
        return largest_positions(flat, kept_count(codec.keep, flat.numel()))
    return positions_above(flat, cast(Threshold, codec).value)


def device_blob(node: Node, array: torch.Tensor, grid: ChunkGrid, spec: GradientSpec) -> Payload:
    """Compress a tensor on its device, if the tree's root is computed there.

    Parameters
    ----------
    node : Node
    array : torch.Tensor
        Of the grid's shape, contiguous, of the spec's dtype, all of it finite.
    grid : ChunkGrid
    spec : GradientSpec

    Returns
    -------
    Payload
        With the bytes of `tree_blob`, and `Payload.decoded` on the gradient's device.
    """
    array = array.detach()
    if not (array.numel() and computes_root(node)):
        return placed(host_blob(node, host(array), grid, spec), array)
    if is_sparse(node):
        return sparse_blob(node, array, positions_of(node.codec, array.reshape(-1)), spec)
    coder = coder_of(node, array, grid)
    decoded = torch.empty_like(array)
    lossless = all(child.lossless for _, child in node.children)
    found = _parts_by_chunk(node.codec, array, grid, decoded)

    def code(index: int, start: int, chunk: torch.Tensor, out: torch.Tensor) -> Pieces:
        parts, own = next(found), grid.spec(index)
        if not parts:
            return []
        pieces = within(own, encode_parts(node, parts, own, coder.shared[0]))
        if pieces and not lossless:
            exact = coder.decode(np.frombuffer(join(pieces), np.uint8), own, None)
            out[...] = torch.from_numpy(exact)
        return pieces

    return chunked_blob(array, decoded, grid, spec, code, coder)


def _parts_by_chunk(
    codec: Codec, array: torch.Tensor, grid: ChunkGrid, decoded: torch.Tensor
) -> Iterator[dict[str, np.ndarray]]:
    """Yield the parts of each chunk, none where it is not representable; fill in `decoded`.

    The parts of all chunks are computed at once where no group lies in two of them.
    """

    def compute(start: int, stop: int) -> dict[str, np.ndarray]:
        try:
            parts = parts_of(codec, array[start:stop])
        except NotRepresentable:
            return {}
        decoded[start:stop] = restore(codec, parts, array.dtype)
        return {name: host(part) for name, part in parts.items()}

    group = getattr(codec, "group", 1)
    within_rows = len(grid.shape) > 1 and group != 0
    at_once = within_rows or (group > 0 and grid.chunk % group == 0)
    whole = compute(0, grid.shape[0]) if at_once else {}
    for _, start, stop in grid.chunks():
        first, last = (Groups.of((row, *grid.shape[1:]), group).count for row in (start, stop))
        yield {
            name: part[start:stop] if part.shape == grid.shape else part[first:last]
            for name, part in whole.items()
        } or compute(start, stop)


def receive_on(node: Node, payload: Payload, device: torch.device) -> DecodedGradient:
    """Decode a payload to tensors on a device.

    Raises
    ------
    CodecError
        If the payload is damaged.
    """
    spec = payload.spec
    if not payload.data or not spec.size or is_sparse(node) or not computes(node.codec):
        return move(receive_blob(node, payload), device)
    grid = grid_of(spec.shape, spec.dtype)
    shared, chunks = open_payload(payload, grid)
    coder = ChunkCoder.unpack((node,), shared)
    dtype = torch.float64 if spec.dtype == np.float64 else torch.float32
    out = torch.empty(grid.shape, dtype=dtype, device=device)
    for (index, start, stop), chunk in zip(grid.chunks(), chunks, strict=True):
        own: Any = grid.spec(index)
        if chunk.size == 0 or chunk[0] != CODED:
            out[start:stop] = torch.from_numpy(coder.decode(chunk, own, None))
            continue
        framed = framed_parts(node, own, chunk[1:])
        parts = {
            name: decode(child, framed[name][1], framed[name][0], below)
            for (name, child), below in zip(node.children, coder.shared[0][1], strict=True)
        }
        out[start:stop] = receive(node.codec, parts, device, dtype).reshape(own.shape)
    return DenseGradient(out.reshape(-1))
