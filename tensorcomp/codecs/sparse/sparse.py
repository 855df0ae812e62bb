"""Arrays with many zeros: where the others are, and what they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tensorcomp.codecs.base import ArraySpec, Transform
from tensorcomp.codecs.bit_views import as_words
from tensorcomp.codecs.sparse.masks import kept_values, masked_parts, restore, rounding_of_kept

if TYPE_CHECKING:
    from tensorcomp.codecs.feedback import Matrix, Rounding


@dataclass(frozen=True)
class Sparse(Transform):
    """Split an array into a mask of its non-zero elements, and those elements.

    An element is zero where all its bits are.

    Parts: ``mask``, bool, of the array's shape; ``values``, one-dimensional, of the array's dtype,
    in row-major order. −0.0 has a bit and counts as a value.

    Lossless. Cost: O(n), 0.5 to 1 ns an element each way. Worth it above a few percent of zeros;
    code the mask by `bitpack` (1 bit an element) near half, by `gaps` below 30 % or above 70 %
    values, by `runlength` where zeros stand in blocks. Not for elements of 16 bytes.
    """

    id: ClassVar[str] = "sparse"
    for_zeros: ClassVar[bool] = True
    may_refuse: ClassVar[bool] = False
    zeros: ClassVar[str] = "apart"
    default_parts: ClassVar[Mapping[str, str]] = {"mask": "bitpack", "values": "fields"}

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the specs of the mask and of the values, as many as the data decide."""
        return masked_parts(spec)

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return mask and values."""
        mask = np.empty(array.shape, np.bool_)
        np.not_equal(as_words(array), 0, out=mask)
        return {"mask": mask, "values": kept_values(array, mask)}

    def rounding(self, matrix: Matrix) -> Rounding | None:
        """Return that of the values; zeros stay zeros."""
        return rounding_of_kept(matrix, matrix.columns != 0)

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Put the values where the mask says."""
        restore(self, parts["mask"], parts["values"], out)
