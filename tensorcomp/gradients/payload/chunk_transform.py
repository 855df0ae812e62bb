"""Encode tensors by parts that a function computes for each chunk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tensorcomp.codecs.base import ArraySpec, Codec, Transform


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
