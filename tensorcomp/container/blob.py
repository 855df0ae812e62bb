"""Lay out a tensor's blob: data shared by its chunks, payloads, index.

::

    what the chunks share, then the payloads, back to back
    uint64  bytes of what the chunks share        uint64  its XXH3-64
    then for each chunk
    uint64  bytes of its payload                  uint64  its XXH3-64

A blob of a single chunk shares nothing, and its index is the payload's XXH3-64 alone (in format 1,
it had an index like all others).

The index comes last so that a blob can be written as a stream. How many chunks there are follows
from the tensor's shape, so it cannot be claimed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import xxhash

from tensorcomp.checkpoints.safetensors.file import Bytes
from tensorcomp.codecs.base import ArraySpec, Pieces
from tensorcomp.codecs.bit_views import readable
from tensorcomp.codecs.payload import decode_into, encode, raw_payload
from tensorcomp.codecs.tree import Node, Shared, fit, pack_shared, unpack_shared
from tensorcomp.container.manifest import FORMAT_VERSION
from tensorcomp.errors import CodecError, FormatError, NotRepresentable

_ENTRY = struct.Struct("<QQ")
_CHECKSUM = struct.Struct("<Q")
_NOTHING = (0, 0, xxhash.xxh3_64_intdigest(b""))  # what a short index, and no other, has first


def blob_index(shared: bytes, payloads: list[tuple[int, int]]) -> bytes:
    """Return a blob's index from the size and checksum of each payload."""
    if len(payloads) == 1:
        if shared:
            raise ValueError("a blob of one chunk shares nothing")
        return _CHECKSUM.pack(payloads[0][1])
    entries = [(len(shared), xxhash.xxh3_64_intdigest(shared)), *payloads]
    return b"".join(_ENTRY.pack(*entry) for entry in entries)


def index_bytes(chunks: int, version: int = FORMAT_VERSION) -> int:
    """Return the size in bytes of the index of a blob."""
    return _CHECKSUM.size if is_short(chunks, version) else _ENTRY.size * (chunks + 1)


def is_short(chunks: int, version: int = FORMAT_VERSION) -> bool:
    """Return whether a blob's index is a single checksum."""
    return chunks == 1 and version > 1


@dataclass(slots=True)  # as `TensorRecord`
class Blob:
    """Blob opened for reading, with a checked index and payloads as views.

    Parameters
    ----------
    data : Bytes
        The blob, flat uint8 where it is an array.
    parts : tuple of (int, int, int)
        Where what is shared, and then each payload, starts and stops, and its checksum.
    name : str
        The tensor's name, for error messages.
    """

    data: Bytes
    parts: tuple[tuple[int, int, int], ...]
    name: str

    @classmethod
    def open(cls, data: Bytes, chunks: int, name: str, version: int = FORMAT_VERSION) -> Blob:
        """Open a blob and check its index against its size.

        Raises `FormatError` if the parts' sizes do not add up to the blob's.
        """
        end = data.size - index_bytes(chunks, version)
        if end < 0:
            raise FormatError(
                f"{data.size:,} bytes cannot hold an index of {chunks:,} chunks", tensor=name
            )
        if is_short(chunks, version):
            return cls(data, (_NOTHING, (0, end, _CHECKSUM.unpack(data[end:])[0])), name)
        parts = []
        start = 0
        for size, checksum in _ENTRY.iter_unpack(data[end:].tobytes()):
            parts.append((start, start + size, checksum))
            start += size
        if start != end:
            raise FormatError(
                f"its chunks take {start:,} bytes, its blob has {end:,} for them", tensor=name
            )
        return cls(data, tuple(parts), name)

    def shared(self) -> bytes:
        """Return the data shared by all chunks, whose checksum is verified."""
        return b"" if self.parts[0] is _NOTHING else self._checked(0).tobytes()

    def payload(self, chunk: int) -> np.ndarray:
        """Return the payload of a chunk, flat uint8; its checksum is verified."""
        return self._checked(chunk + 1)

    def _checked(self, part: int) -> np.ndarray:
        start, stop, checksum = self.parts[part]
        data = self.data[start:stop]
        if xxhash.xxh3_64_intdigest(data) != checksum:
            message = "the checksum is wrong; it is damaged"
            if part == 0:
                message = "the checksum of what its chunks share is wrong; it is damaged"
            raise FormatError(message, tensor=self.name, chunk=part - 1 if part else None)
        return data


CODED, FALLBACK = 1, 2  # marks
_U64 = struct.Struct("<Q")


@dataclass(frozen=True)
class ChunkCoder:
    """Encode and decode chunks by a tree, its fallback and their shared data.

    There are two trees if some chunks may need the second, and shared data for each.
    """

    trees: tuple[Node, ...]
    shared: tuple[Shared, ...]

    @classmethod
    def learn(
        cls, trees: tuple[Node, ...], sample: np.ndarray, reference: np.ndarray | None = None
    ) -> ChunkCoder:
        """Fit the trees to sampled rows; drop a first one that cannot."""
        try:
            return cls(trees, tuple(fit(tree, sample, reference) for tree in trees))
        except NotRepresentable:
            if len(trees) == 1:
                raise
            return cls.learn(trees[1:], sample, reference)

    @classmethod
    def alone(cls, trees: tuple[Node, ...]) -> ChunkCoder:
        """Return the coder of a tensor's only chunk, which shares nothing."""
        return cls(trees, tuple(tree.shares_nothing for tree in trees))

    @classmethod
    def unpack(cls, trees: tuple[Node, ...], data: bytes) -> ChunkCoder:
        """Restore a coder from its shared data.

        Raises `CodecError` if the bytes do not fit the trees.
        """
        if len(trees) == 1:
            return cls(trees, (unpack_shared(trees[0], data),))
        length = _U64.unpack_from(data)[0] if len(data) >= 8 else len(data)
        if length > len(data) - 8:
            raise CodecError("what the chunks share is cut short")
        first, second = data[8 : 8 + length], data[8 + length :]
        return cls(trees, (unpack_shared(trees[0], first), unpack_shared(trees[1], second)))

    def pack(self) -> bytes:
        """Return the data shared by all chunks."""
        packed = [pack_shared(shared) for shared in self.shared]
        return packed[0] if len(packed) == 1 else _U64.pack(len(packed[0])) + packed[0] + packed[1]

    @property
    def uses_reference(self) -> bool:
        """Whether a tree codes chunks given the same rows of a base."""
        return any(tree.codec.uses_reference for tree in self.trees)

    def encode(
        self, array: np.ndarray, tree: Node | None = None, reference: np.ndarray | None = None
    ) -> Pieces:
        """Return the payload of a chunk; at most two bytes more than the chunk has.

        Parameters
        ----------
        array : numpy.ndarray
        tree : Node, optional
            To encode with in place of the first tree, which decodes what it gives.
        reference : numpy.ndarray, optional
            The same rows of a base.
        """
        tree = self.trees[0] if tree is None else tree
        try:
            return encode(tree, array, self.shared[0], reference=reference)
        except NotRepresentable:
            if len(self.trees) == 1:
                return raw_payload(readable(array))
        second = encode(self.trees[1], array, self.shared[1], reference=reference)
        return [bytes([FALLBACK]), *second]

    def decode(
        self,
        payload: np.ndarray,
        spec: ArraySpec,
        out: np.ndarray | None,
        reference: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the chunk of a payload, in `out` if given; see `decode_into`."""
        if out is None:
            out = np.empty(spec.shape, spec.dtype)
        self.decode_into(payload, out, reference)
        return out

    def decode_into(
        self, payload: np.ndarray, out: np.ndarray, reference: np.ndarray | None = None
    ) -> None:
        """Fill an array of the chunk's shape and dtype from its payload.

        Raises
        ------
        CodecError
            If the payload is damaged.
        """
        if len(self.trees) == 2 and payload.size and payload[0] == FALLBACK:
            decode_into(self.trees[1], payload[1:], out, self.shared[1], reference)
        else:
            decode_into(self.trees[0], payload, out, self.shared[0], reference)
