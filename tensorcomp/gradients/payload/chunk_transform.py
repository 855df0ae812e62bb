"""Encode tensors by parts that a function computes for each chunk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tensorcomp.codecs.base import ArraySpec, Codec, Transform
from tensorcomp.codecs.bit_views import readable
from tensorcomp.codecs.payload import join, raw_payload
from tensorcomp.codecs.tree import Node
from tensorcomp.container.blob import CODED, ChunkCoder
from tensorcomp.container.chunk_grid import ChunkGrid
from tensorcomp.container.tensor_blob import EncodedTensor, chunk_roots, encode_tensor


@dataclass(frozen=True, eq=False)
class ChunkTransform(Transform):
    """Encode chunks by a function whose parts a codec decodes.

    Parameters
    ----------
    codec : Transform
        Decodes the parts.
    compute : callable
        Returns the parts of a chunk, given the chunk and where it starts along the first axis;
        raises `NotRepresentable` where the chunk is to be stored as it is.
    start : int
        Where the chunk starts.
    """

    lossless: ClassVar[bool] = False
    codec: Any
    compute: Callable[[np.ndarray, int], dict[str, np.ndarray]]
    start: int = 0

    @property
    def id(self) -> str:  # type: ignore[override]
        """The codec's id."""
        return str(self.codec.id)

    def per_chunk(self, array: np.ndarray, bounds: Sequence[tuple[int, int]]) -> list[Codec]:
        """Return codecs that know where their chunks start."""
        return [replace(self, start=start) for start, _ in bounds]

    def parts(self, spec: ArraySpec) -> Mapping[str, ArraySpec]:
        """Return the specs of the codec's parts."""
        found: Mapping[str, ArraySpec] = self.codec.parts(spec)
        return found

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return the computed parts."""
        return self.compute(array, self.start)

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Decode by the codec."""
        self.codec.decode(parts, out, shared)


def encode_computed(
    root: Node, coder: ChunkCoder, grid: ChunkGrid, whole: Callable[[int, int], np.ndarray]
) -> EncodedTensor:
    """Encode a tensor by computed parts, without reading its elements.

    Parameters
    ----------
    root : Node
        Of a `ChunkTransform`.
    coder : ChunkCoder
    grid : ChunkGrid
    whole : callable
        Returns the elements of a chunk, given where it starts and stops: asked for where its parts
        would take more bytes.
    """
    unseen = np.empty(grid.shape, grid.dtype)  # memory that is never touched costs nothing
    roots = chunk_roots(root, unseen, grid) if grid.count > 1 else (root,)
    encoded = encode_tensor(unseen, coder, grid, roots)
    payloads = [
        data if data[0] == CODED else join(raw_payload(readable(whole(start, stop))))
        for (_, start, stop), data in zip(grid.chunks(), encoded.payloads, strict=True)
    ]
    return EncodedTensor(encoded.shared, payloads)
