"""Structured pruning of filters: whole rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.base import ArraySpec, Codec, Transform
from tensorcomp.codecs.rounding import widened
from tensorcomp.codecs.sparse.selection import (
    Bounds,
    block_squares,
    check_hexadecimal,
    check_sparsity,
    from_hexadecimal,
    kept_values,
    mark_strongest,
    restore,
    sound_mask,
    spread,
    to_hexadecimal,
)
from tensorcomp.errors import CodecError, NotRepresentable


@dataclass(frozen=True)
class FilterRows(Transform):
    """Set exactly that part of the filters, rows of the first axis, to zero whose norm is lowest.

    Of r rows round(sparsity × r), ties to even, are set to +0.0; of equal L2 norms the first ones
    are. Of a tensor in chunks they are chosen among all rows of the tensor.

    Parts: ``mask``, bool, one a row, true where it is kept; ``values``, of the array's dtype, the
    kept rows as they are: the array's shape with a shorter first axis.

    Error: the norm of the rows that are set to zero. Kept rows are exact unless their subtree loses
    something.

    Parameters
    ----------
    sparsity : float
        From 0 to 1.
    keep : str
        A mask of the rows to keep, in place of a sparsity: hexadecimal digits, two for each eight
        rows, the first one in the highest bit.

    Notes
    -----
    Cost: O(n), 2 ns an element to encode, 1 ns to decode, without the coder of the values. For
    layers whose filters will be cut away for good. Not for small errors: filters of trained
    networks are seldom near zero. Not for arrays with NaN or infinity, nor of less than two axes.

    References
    ----------
    Li et al. 2017, "Pruning filters for efficient ConvNets".
    """

    id: ClassVar[str] = "filter"
    lossless: ClassVar[bool] = False
    default_parts: ClassVar[Mapping[str, str]] = {"mask": "bitpack", "values": "floats"}
    sparsity: float = 0.5
    keep: str = ""

    def __post_init__(self) -> None:
        check_sparsity(self.sparsity)
        check_hexadecimal(self.keep, "keep")

    def per_chunk(self, array: np.ndarray, bounds: Sequence[tuple[int, int]]) -> list[Codec]:
        """Return for each chunk the codec that keeps those of its rows that the tensor keeps.

        Raises
        ------
        NotRepresentable
            If the tensor holds anything but finite floats, or has less than two axes.
        """
        mask = self._mask(array, bounds)
        return [replace(self, keep=to_hexadecimal(mask[start:stop])) for start, stop in bounds]

    def _mask(self, array: np.ndarray, bounds: Bounds) -> np.ndarray:
        """Return the mask of an array's rows, which is looked at in runs of them."""
        if array.ndim < 2:
            raise NotRepresentable(f"filter: the shape {array.shape} has no filters")
        if self.keep:
            widened(array, self.id)
            return from_hexadecimal(self.keep, array.shape[:1], self.id)
        block = 1, math.prod(array.shape[1:])
        squares = block_squares(array, self.id, block, (array.shape[0], 1), bounds)
        return mark_strongest(squares.reshape(-1), self.sparsity)

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the mask's spec, and that of as many rows as are kept."""
        rows, *rest = spec.shape or (0,)
        return {
            "mask": ArraySpec((rows,), np.dtype(np.bool_)),
            "values": ArraySpec((-1, *rest), spec.dtype),
        }

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return mask and values.

        Raises
        ------
        NotRepresentable
            If the array holds anything but finite floats, or has less than two axes.
        """
        mask = self._mask(array, [(0, len(array))] if array.ndim else [])
        values = kept_values(array, spread(mask, 0, array.shape))
        rows = int(np.count_nonzero(mask)) if values.size else 0
        return {"mask": mask, "values": values.reshape(rows, *array.shape[1:])}

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Put the values where the mask says."""
        if out.ndim < 2:
            raise CodecError(f"filter: the shape {out.shape} has no filters")
        mask = sound_mask(parts["mask"], self.id)
        restore(spread(mask, 0, out.shape), parts["values"], out, self.id)
