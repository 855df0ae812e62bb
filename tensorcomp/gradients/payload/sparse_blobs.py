"""Encode and decode sparse payloads by positions, without masks.

The bytes are those of `codecs.payload`; what is saved are the passes over a mask of all elements.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from tensorcomp.codecs.base import ArraySpec, Pieces, Transform
from tensorcomp.codecs.entropy.gaps import Gaps
from tensorcomp.codecs.payload import (
    byte_count,
    decode,
    encode_part,
    framed_part,
    framed_parts,
    join,
)
from tensorcomp.codecs.sparse.randomk import RandomK
from tensorcomp.codecs.tree import Node
from tensorcomp.errors import CodecError
from tensorcomp.gradients.draws import find_draws
from tensorcomp.gradients.payload.decoded import SparseGradient

CODED = 1  # a mark, see `codecs.payload`
_PARTS = ("mask", "values")


def is_sparse(node: Node) -> bool:
    """Test whether a tree's root selects elements by a mask."""
    return hasattr(node.codec, "positions") and tuple(name for name, _ in node.children) == _PARTS


def encode_selected(
    node: Node, where: Pieces, values: np.ndarray, spec: ArraySpec
) -> tuple[Pieces, np.ndarray]:
    """Encode selected elements of a chunk; no pieces if longer than the chunk.

    Parameters
    ----------
    node : Node
    where : Pieces
        The bytes of the first part, which says what is selected.
    values : numpy.ndarray
        What is selected (k,).
    spec : ArraySpec
        Of the chunk.

    Returns
    -------
    Pieces
    numpy.ndarray
        What the values decode to.
    """
    (name, _), (_, values_node) = node.children
    specs = cast(Transform, node.codec).parts(spec)
    coded = encode_part(values_node, values)
    first = framed_part(specs[name], spec.size, where)
    pieces = within(spec, [*first, *framed_part(specs["values"], values.size, coded)])
    if pieces and not values_node.lossless:
        values = decode(values_node, join(coded), ArraySpec(values.shape, values.dtype))
    return pieces, values


def within(spec: ArraySpec, parts: Pieces) -> Pieces:
    """Return the payload of a chunk's parts.

    Empty where it is longer than the chunk.
    """
    return [] if byte_count(parts) > spec.nbytes else [bytes([CODED]), *parts]


def encode_mask(node: Node, positions: np.ndarray, spec: ArraySpec) -> Pieces:
    """Return a mask's bytes by its subtree.

    The mask is given by the flat indices (k,) where it is true.
    """
    if _takes_positions(node) and 0 < 2 * positions.size <= spec.size:
        gaps = cast(Gaps, node.codec)
        coded: Pieces = [bytes([CODED]), *gaps.encode_positions(positions, spec.size)]
        if byte_count(coded) - 1 <= spec.size:
            return coded
    mask = np.zeros(spec.size, np.bool_)
    mask[positions] = True
    return encode_part(node, mask.reshape(spec.shape))


def _takes_positions(node: Node) -> bool:
    return isinstance(node.codec, Gaps) and not node.children


def receive_sparse(node: Node, payload: np.ndarray, spec: ArraySpec) -> SparseGradient:
    """Decode the payload of a chunk to positions and values.

    Raises
    ------
    CodecError
        If it is damaged.
    """
    if payload.size == 0 or payload[0] != CODED:
        values = decode(node, payload, spec).reshape(-1)
        return SparseGradient(np.arange(values.size), values)
    (name, where), (_, values_node) = node.children
    parts = framed_parts(node, spec, payload[1:])
    values = decode(values_node, parts["values"][1], parts["values"][0])
    if isinstance(node.codec, RandomK):
        seed, first, limit = map(int, decode(where, parts[name][1], parts[name][0]))
        size = spec.size if values.size else 0
        drawn = find_draws(seed, first, size, limit, values.size)
        positions = np.empty(0, np.int64) if drawn is None else drawn[0]
    else:
        positions = _masked_positions(where, *parts[name])
    if values.size != positions.size:
        raise CodecError(f"{node.codec.id}: expected {values.size} places, as many as values")
    return SparseGradient(positions, values)


def _masked_positions(node: Node, spec: ArraySpec, payload: np.ndarray) -> np.ndarray:
    if _takes_positions(node) and payload.size and payload[0] == CODED and spec.size:
        positions = cast(Gaps, node.codec).decode_positions(payload[1:], spec.size)
        if positions is not None:
            return positions
    mask = decode(node, payload, spec).reshape(-1)
    if mask.size and mask.view(np.uint8).max() > 1:
        raise CodecError("expected bytes of a mask to be 0 or 1")
    return np.flatnonzero(mask)
