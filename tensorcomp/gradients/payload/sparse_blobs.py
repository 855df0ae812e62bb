"""Payloads of trees with a mask and values, from places and back to places, without a mask.

The bytes are those of `codecs.tree`; what is saved are the passes over a mask of all elements.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from tensorcomp.codecs.base import ArraySpec, Pieces, Transform
from tensorcomp.codecs.entropy.gaps import Gaps
from tensorcomp.codecs.tree import (
    Node,
    byte_count,
    decode,
    encode_part,
    framed_part,
    framed_parts,
    join,
    raw_payload,
    readable,
)
from tensorcomp.errors import CodecError
from tensorcomp.gradients.payload.decoded import SparseGradient

_RAW, _CODED = 0, 1  # marks, see `codecs.tree`
_PARTS = ("mask", "values")


def is_sparse(node: Node) -> bool:
    """Return whether a tree's root selects elements: whether it has a mask and values."""
    return hasattr(node.codec, "positions") and tuple(name for name, _ in node.children) == _PARTS


def encode_sparse(
    node: Node, chunk: np.ndarray, positions: np.ndarray, spec: ArraySpec
) -> tuple[bytes, SparseGradient]:
    """Return a chunk's payload, and what it decodes to.

    Parameters
    ----------
    node : Node
    chunk : numpy.ndarray
        Flat (n,).
    positions : numpy.ndarray
        Flat indices of what is kept (k,), int64, ascending, from 0 on.
    spec : ArraySpec
        Of the chunk.
    """
    (_, mask_node), (_, values_node) = node.children
    values = chunk[positions]
    specs = cast(Transform, node.codec).parts(spec)
    coded_values = encode_part(values_node, values)
    pieces: Pieces = [
        bytes([_CODED]),
        *framed_part(specs["mask"], chunk.size, encode_mask(mask_node, positions, spec)),
        *framed_part(specs["values"], values.size, coded_values),
    ]
    if byte_count(pieces) - 1 > spec.nbytes:
        # A payload within its input and a byte: few elements, of which many are kept.
        everything = np.arange(chunk.size)
        return join(raw_payload(readable(chunk))), SparseGradient(everything, chunk.copy())
    if not values_node.lossless:
        values = decode(values_node, join(coded_values), ArraySpec(values.shape, values.dtype))
    return join(pieces), SparseGradient(positions, values)


def encode_mask(node: Node, positions: np.ndarray, spec: ArraySpec) -> Pieces:
    """Return a mask's bytes by its subtree, from where it is true.

    Parameters
    ----------
    node : Node
    positions : numpy.ndarray
        Flat indices (k,), int64, ascending.
    spec : ArraySpec
        Of the masked array.
    """
    if _takes_positions(node) and 0 < 2 * positions.size <= spec.size:
        gaps = cast(Gaps, node.codec)
        coded: Pieces = [bytes([_CODED]), *gaps.encode_positions(positions, spec.size)]
        if byte_count(coded) - 1 <= spec.size:
            return coded
    mask = np.zeros(spec.size, np.bool_)
    mask[positions] = True
    return encode_part(node, mask.reshape(spec.shape))


def _takes_positions(node: Node) -> bool:
    return isinstance(node.codec, Gaps) and not node.children


def receive_sparse(node: Node, payload: np.ndarray, spec: ArraySpec) -> SparseGradient:
    """Return what a chunk's payload decodes to.

    Raises
    ------
    CodecError
        If it is damaged.
    """
    if payload.size == 0 or payload[0] != _CODED:
        values = decode(node, payload, spec).reshape(-1)
        return SparseGradient(np.arange(values.size), values)
    (_, mask_node), (_, values_node) = node.children
    parts = framed_parts(node, spec, payload[1:])
    positions = _receive_mask(mask_node, *parts["mask"])
    values = decode(values_node, parts["values"][1], parts["values"][0])
    if values.size != positions.size:
        raise CodecError(f"{node.codec.id}: {values.size} values for {positions.size} places")
    return SparseGradient(positions, values)


def _receive_mask(node: Node, spec: ArraySpec, payload: np.ndarray) -> np.ndarray:
    if _takes_positions(node) and payload.size and payload[0] == _CODED and spec.size:
        positions = cast(Gaps, node.codec).decode_positions(payload[1:], spec.size)
        if positions is not None:
            return positions
    mask = decode(node, payload, spec).reshape(-1)
    if mask.size and mask.view(np.uint8).max() > 1:
        raise CodecError("a byte of the mask is neither 0 nor 1")
    return np.flatnonzero(mask)
