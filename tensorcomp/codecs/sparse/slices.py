"""Structured pruning of slices along an axis: what `filter` and `channel` share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import ArraySpec, Codec, Transform
from tensorcomp.codecs.rounding import as_matrix, widened
from tensorcomp.codecs.sparse import selection
from tensorcomp.errors import CodecError, NotRepresentable

_FEWEST = 8  # slices among which some may be dead
_DEAD = 1e-4  # of the mean energy: a slice below it is next to nothing
_FEW = 0.02  # share of such slices from which dropping them may pay


@dataclass(frozen=True)
class PrunedSlices(Transform):
    """Base of codecs that set the slices of lowest norm along their `axis` to zero."""

    axis: ClassVar[int]
    lossless: ClassVar[bool] = False
    zeros: ClassVar[str] = "passed on"
    default_parts: ClassVar[Mapping[str, str]] = {"mask": "bitpack", "values": "floats"}
    sparsity: float = argument(0.5, least=0, most=1)
    keep: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        selection.check_hexadecimal(self.keep, "keep")

    def is_promising(self, sample: np.ndarray, rows: int) -> bool:
        """Return whether some rows (columns of the matrix) are next to nothing."""
        energy = np.mean(as_matrix(sample) ** 2, axis=1 - self.axis)
        return bool(energy.size >= _FEWEST and np.mean(energy < _DEAD * energy.mean()) >= _FEW)

    def per_chunk(self, array: np.ndarray, bounds: Sequence[tuple[int, int]]) -> list[Codec]:
        """Return for each chunk the codec that keeps those slices that the tensor keeps.

        Raises
        ------
        NotRepresentable
            If the tensor holds anything but finite floats, or has less than two axes.
        """
        mask = self._mask(array, bounds)
        if self.axis:
            return [replace(self, keep=selection.to_hexadecimal(mask))] * len(bounds)
        return [
            replace(self, keep=selection.to_hexadecimal(mask[start:stop])) for start, stop in bounds
        ]

    def _mask(self, array: np.ndarray, bounds: selection.Bounds) -> np.ndarray:
        """Return the mask of an array's slices; it is looked at in runs of rows."""
        if array.ndim < 2:
            raise NotRepresentable(f"{self.id}: expected two axes or more, got {array.shape}")
        count = array.shape[self.axis]
        if self.keep:
            widened(array, self.id)
            return selection.from_hexadecimal(self.keep, (count,), self.id)
        block, blocks = (1, math.prod(array.shape[1:])), (count, 1)
        if self.axis:
            block, blocks = (array.shape[0], math.prod(array.shape[2:])), (1, count)
        squares = selection.block_squares(array, self.id, block, blocks, bounds)
        return selection.mark_strongest(squares.reshape(-1), self.sparsity)

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the mask's spec, and that of the kept slices."""
        shape = list(spec.shape) if len(spec.shape) > self.axis else [0] * (self.axis + 1)
        count = shape[self.axis]
        shape[self.axis] = self._kept(count) if self.axis else -1
        return {
            "mask": ArraySpec((count,), np.dtype(np.bool_)),
            "values": ArraySpec(tuple(shape), spec.dtype),
        }

    def _kept(self, count: int) -> int:
        return int(self.keep, 16).bit_count() if self.keep else count - round(self.sparsity * count)

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return mask and values.

        Raises
        ------
        NotRepresentable
            If the array holds anything but finite floats, or has less than two axes.
        """
        mask = self._mask(array, [(0, len(array))] if array.ndim else [])
        values = selection.kept_values(array, selection.spread(mask, self.axis, array.shape))
        shape = list(array.shape)
        shape[self.axis] = int(np.count_nonzero(mask)) if values.size or self.axis else 0
        return {"mask": mask, "values": values.reshape(shape)}

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Put the values where the mask says."""
        if out.ndim < 2:
            raise CodecError(f"{self.id}: expected two axes or more, got {out.shape}")
        mask = selection.sound_mask(parts["mask"], self.id)
        selection.restore(
            selection.spread(mask, self.axis, out.shape), parts["values"], out, self.id
        )
