"""Structured pruning of slices along an axis, for `filter` and `channel`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import ArraySpec, Codec
from tensorcomp.codecs.rounding import as_matrix
from tensorcomp.codecs.sparse.masks import kept_values, masked_parts, spread
from tensorcomp.codecs.sparse.structured import StructuredPruning, to_hexadecimal

_MIN_SLICES = 8  # among which some may be next to nothing
_TINY = 1e-4  # of the mean: a slice below it is next to nothing
_SHARE = 0.02  # of such slices from which dropping them may pay


@dataclass(frozen=True)
class PrunedSlices(StructuredPruning):
    """Base class of codecs that set slices along `axis` to zero.

    Those of the lowest norm.

    Parameters
    ----------
    sparsity : float
        From 0 to 1.
    keep : str
        A mask of the slices to keep, in place of a sparsity: hexadecimal digits, two for each eight
        slices, the first one in the highest bit.
    """

    axis: ClassVar[int]
    default_parts: ClassVar[Mapping[str, str]] = {"mask": "bitpack", "values": "floats"}
    sparsity: float = argument(0.5, least=0, most=1)
    keep: str = ""

    def is_promising(self, sample: np.ndarray, rows: int) -> bool:
        """Return whether some rows (columns of the matrix) are next to nothing."""
        matrix = as_matrix(sample)
        energy = np.einsum("ij,ij->j" if self.axis else "ij,ij->i", matrix, matrix)
        few = np.count_nonzero(energy < _TINY * (energy.sum() / max(energy.size, 1)))
        return bool(energy.size >= _MIN_SLICES and few >= _SHARE * energy.size)

    def per_chunk(self, array: np.ndarray, bounds: Sequence[tuple[int, int]]) -> list[Codec]:
        """Return for each chunk the codec that keeps the tensor's kept slices."""
        mask = self.kept_blocks(array, bounds)
        if self.axis:
            return [replace(self, keep=to_hexadecimal(mask))] * len(bounds)
        return [replace(self, keep=to_hexadecimal(mask[start:stop])) for start, stop in bounds]

    def blocks(self, shape: tuple[int, ...]) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return a slice's rows and columns, and how many slices down and across."""
        if self.axis:
            return (shape[0], math.prod(shape[2:])), (1, shape[1])
        return (1, math.prod(shape[1:])), (shape[0], 1)

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the mask's spec, and that of the kept slices."""
        shape = list(spec.shape) if len(spec.shape) > self.axis else [0] * (self.axis + 1)
        count = shape[self.axis]
        shape[self.axis] = self._kept(count) if self.axis else -1
        return masked_parts(spec, (count,), shape)

    def _kept(self, count: int) -> int:
        return int(self.keep, 16).bit_count() if self.keep else count - round(self.sparsity * count)

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return mask and values."""
        mask = self.kept_blocks(array).reshape(-1)
        values = kept_values(array, spread(mask, self.axis, array.shape))
        shape = list(array.shape)
        shape[self.axis] = int(np.count_nonzero(mask)) if values.size or self.axis else 0
        return {"mask": mask, "values": values.reshape(shape)}

    def spread(self, parts: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
        """Return the mask of an array's elements from that of its slices."""
        return spread(parts["mask"], self.axis, shape)
