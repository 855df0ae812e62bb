"""Structured pruning of n : m, what sparse matrix units multiply."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import ArraySpec, spec_of
from tensorcomp.codecs.bit_views import as_rows, as_words
from tensorcomp.codecs.rounding import widened
from tensorcomp.codecs.sparse.masks import Pruning, kept_values, restore, rounding_of_kept
from tensorcomp.codecs.strategy import Strategy
from tensorcomp.errors import CodecError
from tensorcomp.kernels import native

if TYPE_CHECKING:
    from tensorcomp.codecs.feedback import Matrix, Rounding


@dataclass(frozen=True)
class NM(Pruning):
    """Keep the `keep` largest of each group of neighbours; set others to zero.

    Groups are neighbours within a row.

    A row is the array without its first axis, flat; a vector is one row. The last group of a row
    may be shorter and keeps as many, or all that it has. Of equal magnitudes the first are kept.

    Parts: ``mask``, unsigned of 8 bits, or 16 for groups of more than 8, (rows, groups of a row):
    the bits of the kept elements, the first in the lowest bit; ``values``, those elements as they
    are, (rows, kept elements of a row), of the array's dtype.

    Error: the norm of the elements that are set to zero: with 2 of 4, those below the median of
    their group. Kept elements are exact unless their subtree loses something.

    Parameters
    ----------
    keep : int
        From 1 to `group`.
    group : int
        Up to 16.

    Notes
    -----
    Cost: O(n group), 3 ns an element in groups of 4 to encode, 2 ns to decode, without the parts'
    coders; the mask takes log2 C(group, keep) bits a group behind an entropy coder. For 2 of 4 on
    hardware that skips the zeros. Not for small files: `magnitude` loses less with as many zeros.
    Not for arrays with NaN or infinity.

    References
    ----------
    Mishra et al. 2021, "Accelerating sparse deep neural networks"; Zhou et al. 2021, "Learning N:M
    fine-grained structured sparse neural networks from scratch".
    """

    id: ClassVar[str] = "nm"
    strategies: ClassVar[tuple[Strategy, ...]] = (
        Strategy("2 of 4 zeros", "nm(2, 4, values=uniform($step))", 6),
    )
    default_parts: ClassVar[Mapping[str, str]] = {"mask": "ans", "values": "floats"}
    keep: int = argument(2, least=1)
    group: int = argument(4, least=1, most=16)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep > self.group:
            raise ValueError(f"expected keep to be at most {self.group}, got {self.keep}")

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the specs of the groups' masks and of the values."""
        if 0 in spec.shape:
            rows = columns = 0
        else:
            rows = spec.shape[0] if len(spec.shape) > 1 else 1
            columns = math.prod(spec.shape) // rows
        whole, rest = divmod(columns, self.group)
        kept = whole * self.keep + min(self.keep, rest)
        mask = np.dtype(np.uint8 if self.group <= 8 else "<u2")
        return {
            "mask": ArraySpec((rows, whole + (rest > 0)), mask),
            "values": ArraySpec((rows, kept), spec.dtype),
        }

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return masks and values."""
        widened(array, self.id)
        return self.split(array, 8 * array.itemsize - 1)

    def split(self, array: np.ndarray, bits: int) -> dict[str, np.ndarray]:
        """Return masks of the elements whose low bits are largest, and the elements."""
        specs = self.parts(spec_of(array))
        masks = np.empty(specs["mask"].shape, specs["mask"].dtype)
        words = as_rows(as_words(array))
        native.selection_group_masks(words, bits, self.keep, self.group, masks)
        values = kept_values(array, self._spread(masks, array.shape))
        return {"mask": masks, "values": values.reshape(specs["values"].shape)}

    def rounding(self, matrix: Matrix) -> Rounding | None:
        """Return that of the values; columns make up for what becomes 0 too."""
        if matrix.in_order is None:
            return None
        array = matrix.coded()
        kept = self._spread(self.split(array, 8 * array.itemsize - 1)["mask"], array.shape)
        return rounding_of_kept(matrix, kept if matrix.in_order else kept.T)

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Put the values where the masks say."""
        restore(self, self._spread(parts["mask"], out.shape), parts["values"], out)

    def _spread(self, masks: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Return the mask of an array's elements from those of its groups."""
        mask = np.empty(shape, np.bool_)
        if not native.selection_spread_masks(masks, self.keep, self.group, as_rows(mask)):
            raise CodecError(f"{self.id}: a group does not keep {self.keep} of {self.group}")
        return mask
