"""A chunk's payload under a plan of two trees: the one that was chosen, and a fallback.

A payload begins with its tree's mark (see `codecs.tree`): 0, raw bytes; 1, the first tree's bytes.
The mark 2 says that the fallback's payload follows, with a mark of its own. What a tensor's chunks
share is what its trees share, one after the other, each behind its length if there are two.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from tensorcomp.codecs.base import ArraySpec, Pieces
from tensorcomp.codecs.tree import (
    Node,
    Shared,
    decode_into,
    encode,
    fit,
    nothing_shared,
    pack_shared,
    raw_payload,
    readable,
    unpack_shared,
)
from tensorcomp.errors import CodecError, NotRepresentable

CODED, FALLBACK = 1, 2  # marks
_U64 = struct.Struct("<Q")


@dataclass(frozen=True)
class ChunkCoder:
    """The trees of a tensor together with what its chunks share.

    Parameters
    ----------
    trees : tuple of Node
        One, or two if some chunks may need the second.
    shared : tuple of Shared
        One a tree.
    """

    trees: tuple[Node, ...]
    shared: tuple[Shared, ...]

    @classmethod
    def learn(cls, trees: tuple[Node, ...], sample: np.ndarray) -> ChunkCoder:
        """Fit the trees to a sample of the tensor's rows; drop a first tree that cannot take it."""
        try:
            return cls(trees, tuple(fit(tree, sample) for tree in trees))
        except NotRepresentable:
            if len(trees) == 1:
                raise
            return cls.learn(trees[1:], sample)

    @classmethod
    def alone(cls, trees: tuple[Node, ...]) -> ChunkCoder:
        """Return the coder of a tensor's only chunk, which shares nothing."""
        return cls(trees, tuple(nothing_shared(tree) for tree in trees))

    @classmethod
    def unpack(cls, trees: tuple[Node, ...], data: bytes) -> ChunkCoder:
        """Read what `pack` wrote.

        Raises
        ------
        CodecError
            If the bytes do not fit the trees.
        """
        if len(trees) == 1:
            return cls(trees, (unpack_shared(trees[0], data),))
        length = _U64.unpack_from(data)[0] if len(data) >= 8 else len(data)
        if length > len(data) - 8:
            raise CodecError("what the chunks share is cut short")
        first, second = data[8 : 8 + length], data[8 + length :]
        return cls(trees, (unpack_shared(trees[0], first), unpack_shared(trees[1], second)))

    def pack(self) -> bytes:
        """Return what the chunks share."""
        packed = [pack_shared(shared) for shared in self.shared]
        return packed[0] if len(packed) == 1 else _U64.pack(len(packed[0])) + packed[0] + packed[1]

    def encode(self, array: np.ndarray, tree: Node | None = None) -> Pieces:
        """Return the payload of a chunk; at most two bytes more than the chunk has.

        Parameters
        ----------
        array : numpy.ndarray
        tree : Node, optional
            To encode with in place of the first tree, which decodes what it gives.
        """
        try:
            return encode(self.trees[0] if tree is None else tree, array, self.shared[0])
        except NotRepresentable:
            if len(self.trees) == 1:
                return raw_payload(readable(array))
        return [bytes([FALLBACK]), *encode(self.trees[1], array, self.shared[1])]

    def decode(self, payload: np.ndarray, spec: ArraySpec, out: np.ndarray | None) -> np.ndarray:
        """Return the chunk of a payload, in `out` if given.

        Raises
        ------
        CodecError
            If the payload is damaged.
        """
        if out is None:
            out = np.empty(spec.shape, spec.dtype)
        self.decode_into(payload, out)
        return out

    def decode_into(self, payload: np.ndarray, out: np.ndarray) -> None:
        """Fill an array of the chunk's shape and dtype from its payload.

        Raises
        ------
        CodecError
            If the payload is damaged.
        """
        if len(self.trees) == 2 and payload.size and payload[0] == FALLBACK:
            decode_into(self.trees[1], payload[1:], out, self.shared[1])
        else:
            decode_into(self.trees[0], payload, out, self.shared[0])
