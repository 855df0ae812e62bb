"""Blobs of gradients that stay on their device: only what is coded further goes to the host.

The bytes are those of `blobs`. Of a sparse tree the places and the values go to the host; of
`affine`, codes of a byte an element and a scale a group; of `sign`, a byte an element; of `cast`,
what it casts to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch

from tensorcomp.codecs.base import ArraySpec, Codec, Transform
from tensorcomp.codecs.quantize.groups import Groups
from tensorcomp.codecs.tree import (
    Node,
    Shared,
    byte_count,
    decode,
    encode_part,
    framed_part,
    framed_parts,
    join,
    raw_payload,
    readable,
)
from tensorcomp.container.blob import Blob
from tensorcomp.container.chunk_coder import ChunkCoder
from tensorcomp.container.chunk_grid import CHUNK_ELEMENTS, ChunkGrid
from tensorcomp.errors import NotRepresentable
from tensorcomp.gradients.base import GradientSpec, Payload
from tensorcomp.gradients.cuda.decoded import DenseTensor, SparseTensor, sent_on
from tensorcomp.gradients.cuda.parts import (
    combined,
    has_device_way,
    parts_of,
    positions_of,
    received_parts,
)
from tensorcomp.gradients.cuda.transforms import host
from tensorcomp.gradients.payload.blobs import grid_of, learned, pack_blob, receive_blob, tree_blob
from tensorcomp.gradients.payload.decoded import DecodedGradient
from tensorcomp.gradients.payload.sparse_blobs import encode_mask, is_sparse
from tensorcomp.planning.lossless import sample_rows

_CODED = 1  # a mark, see `codecs.tree`


def device_blob(node: Node, gradient: torch.Tensor, spec: GradientSpec) -> Payload:
    """Compress a gradient where it is.

    Parameters
    ----------
    node : Node
        One that `has_device_way`.
    gradient : torch.Tensor
        Contiguous, of the spec's dtype and number of elements, all of them finite.
    spec : GradientSpec

    Returns
    -------
    Payload
        With the bytes of `blobs.tree_blob`, and `Payload.decoded` on the gradient's device.
    """
    grid = grid_of(spec.shape, spec.dtype)
    flat = gradient.detach().reshape(-1)
    if not flat.numel():
        payload = tree_blob(node, np.zeros(spec.shape, spec.dtype), spec)
        return Payload(
            payload.data, spec, sent_on(cast(DecodedGradient, payload.decoded), flat.device)
        )
    if is_sparse(node):
        return _sparse_blob(node, flat, positions_of(node.codec, flat), spec)
    array = flat.reshape(grid.shape)
    coder = _coder(node, array, grid)
    decoded = torch.empty_like(array)
    payloads: list[bytes] = []
    for run in _runs_of_chunks(node.codec, grid):
        payloads += _encode_run(node, array, grid, run, coder, decoded)
    return Payload(pack_blob(coder, payloads), spec, DenseTensor(decoded.reshape(-1)))


def receive_on(node: Node, payload: Payload, device: torch.device) -> DecodedGradient:
    """Return on a device what a payload decodes to.

    Raises
    ------
    CodecError
        If the payload is damaged.
    """
    spec = payload.spec
    if not payload.data or not spec.size or is_sparse(node) or not has_device_way(node):
        return sent_on(receive_blob(node, payload), device)
    grid = grid_of(spec.shape, spec.dtype)
    blob = Blob.open(np.frombuffer(payload.data, np.uint8), grid.count, spec.name)
    coder = ChunkCoder.unpack((node,), blob.shared())
    dtype = torch.float64 if spec.dtype == np.float64 else torch.float32
    out = torch.empty(grid.shape, dtype=dtype, device=device)
    for index in range(grid.count):
        start, stop = grid.bounds(index)
        chunk, chunk_spec = blob.payload(index), grid.spec(index)
        if chunk.size == 0 or chunk[0] != _CODED:
            values = coder.decode(chunk, chunk_spec, None)
            out[start:stop] = torch.from_numpy(values).to(device)
            continue
        parts = _decoded_parts(node, chunk, chunk_spec, coder.shared[0])
        out[start:stop] = received_parts(node.codec, parts, chunk_spec, device, dtype)
    return DenseTensor(out.reshape(-1))


def _sparse_blob(
    node: Node, flat: torch.Tensor, positions: torch.Tensor, spec: GradientSpec
) -> Payload:
    grid = grid_of(spec.shape, spec.dtype)
    places, values = host(positions), host(flat[positions])
    payloads, decoded = [], []
    raw = False
    for index in range(grid.count):
        start, stop = (grid.row_elements * bound for bound in grid.bounds(index))
        first, last = np.searchsorted(places, (start, stop))
        payload, kept = _encode_selected(
            node, places[first:last] - start, values[first:last], grid.spec(index)
        )
        if payload is None:  # it would take more than the chunk itself
            payload, raw = join(raw_payload(readable(host(flat[start:stop])))), True
        payloads.append(payload)
        decoded.append(kept)
    data = pack_blob(ChunkCoder.alone((node,)), payloads)
    if raw:
        return Payload(data, spec, receive_on(node, Payload(data, spec), flat.device))
    kept = np.concatenate(decoded)
    sent = flat[positions] if node.children[1][1].lossless else torch.from_numpy(kept)
    return Payload(data, spec, SparseTensor(positions, sent.to(flat.device)))


def _encode_selected(
    node: Node, positions: np.ndarray, values: np.ndarray, spec: ArraySpec
) -> tuple[bytes | None, np.ndarray]:
    """Return a chunk's payload, None if it is longer than the chunk; and what values decode to."""
    (_, mask_node), (_, values_node) = node.children
    specs = cast(Transform, node.codec).parts(spec)
    coded = encode_part(values_node, values)
    pieces = [
        bytes([_CODED]),
        *framed_part(specs["mask"], spec.size, encode_mask(mask_node, positions, spec)),
        *framed_part(specs["values"], values.size, coded),
    ]
    if byte_count(pieces) - 1 > spec.nbytes:
        return None, values
    if not values_node.lossless:
        values = decode(values_node, join(coded), ArraySpec(values.shape, values.dtype))
    return join(pieces), values


def _coder(node: Node, array: torch.Tensor, grid: ChunkGrid) -> ChunkCoder:
    shares = any(type(codec).shares is not Codec.shares for codec in node.walk())
    if grid.count == 1 or not shares:
        return ChunkCoder.alone((node,))
    sampled: Any = array  # rows of it, which NumPy and torch cut alike
    return learned(node, host(cast(Any, sample_rows(sampled, CHUNK_ELEMENTS))))


def _runs_of_chunks(codec: Codec, grid: ChunkGrid) -> list[tuple[int, int]]:
    """Return runs of chunks that are computed at once: all, where no group lies in two of them."""
    group = getattr(codec, "group", 1)
    within_rows = len(grid.shape) > 1 and group != 0
    if within_rows or (group > 0 and grid.chunk % group == 0):
        return [(0, grid.count)]
    return [(index, index + 1) for index in range(grid.count)]


def _encode_run(
    node: Node,
    array: torch.Tensor,
    grid: ChunkGrid,
    run: tuple[int, int],
    coder: ChunkCoder,
    decoded: torch.Tensor,
) -> list[bytes]:
    """Return the payloads of some chunks, and fill in what they decode to."""
    bounds = [grid.bounds(index) for index in range(*run)]
    begin, end = bounds[0][0], bounds[-1][1]
    whole = array[begin:end]
    try:
        found = parts_of(node.codec, whole)
    except NotRepresentable:
        if len(bounds) > 1:
            return [
                payload
                for index in range(*run)
                for payload in _encode_run(node, array, grid, (index, index + 1), coder, decoded)
            ]
        decoded[begin:end] = whole
        return [join(raw_payload(readable(host(whole))))]
    lossless = all(child.lossless for _, child in node.children)
    if lossless:
        decoded[begin:end] = combined(node.codec, found, array.dtype)
    parts = {name: readable(host(part)) for name, part in found.items()}
    payloads = []
    groups = 0
    for index, (start, stop) in zip(range(*run), bounds, strict=True):
        spec = grid.spec(index)
        specs = cast(Transform, node.codec).parts(spec)
        own = {}
        for name, part in parts.items():
            if specs[name].shape == spec.shape:
                own[name] = part[start - begin : stop - begin]
            else:
                own[name] = part[groups : groups + specs[name].size]
        groups += Groups.of(spec.shape, getattr(node.codec, "group", 1)).count
        payload = _framed(node, own, specs, coder.shared[0])
        if len(payload) - 1 > spec.nbytes:
            payload = join(raw_payload(readable(host(array[start:stop]))))
            decoded[start:stop] = array[start:stop]
        elif not lossless:
            exact = coder.decode(np.frombuffer(payload, np.uint8), spec, None)
            decoded[start:stop] = torch.from_numpy(exact).to(decoded.device)
        payloads.append(payload)
    return payloads


def _framed(
    node: Node, parts: Mapping[str, np.ndarray], specs: Mapping[str, ArraySpec], shared: Shared
) -> bytes:
    pieces: list[Any] = [bytes([_CODED])]
    for (name, child), below in zip(node.children, shared[1], strict=True):
        part = readable(parts[name])
        pieces += framed_part(specs[name], part.size, encode_part(child, part, below))
    return join(pieces)


def _decoded_parts(
    node: Node, chunk: np.ndarray, spec: ArraySpec, shared: Shared
) -> dict[str, np.ndarray]:
    framed = framed_parts(node, spec, chunk[1:])
    return {
        name: decode(child, framed[name][1], framed[name][0], below)
        for (name, child), below in zip(node.children, shared[1], strict=True)
    }
