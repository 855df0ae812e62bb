"""Structured pruning of input channels."""

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
class Channel(Transform):
    """Set exactly that part of the input channels (second axis) to zero whose L2 norm is lowest.

    Of c channels round(sparsity × c), ties to even, are set to +0.0; of equal norms the first ones
    are. Of a tensor in chunks, norms are those of the whole tensor's channels.

    Parts: ``mask``, bool, one a channel, true where it is kept; ``values``, of the array's dtype,
    the kept channels as they are: the array's shape with a shorter second axis.

    Error: the norm of the channels that are set to zero. Kept channels are exact unless their
    subtree loses something.

    Parameters
    ----------
    sparsity : float
        From 0 to 1.
    keep : str
        A mask of the channels to keep, in place of a sparsity: hexadecimal digits, two for each
        eight channels, the first one in the highest bit.

    Notes
    -----
    Cost: O(n), 3 ns an element to encode, 1 ns to decode, without the coder of the values. For
    layers whose input channels will be cut away for good, together with what computes them. Not for
    small errors: channels of trained networks are seldom near zero. Not for arrays with NaN or
    infinity, nor of less than two axes.

    References
    ----------
    He, Zhang & Sun 2017, "Channel pruning for accelerating very deep neural networks".
    """

    id: ClassVar[str] = "channel"
    lossless: ClassVar[bool] = False
    default_parts: ClassVar[Mapping[str, str]] = {"mask": "bitpack", "values": "floats"}
    sparsity: float = 0.5
    keep: str = ""

    def __post_init__(self) -> None:
        check_sparsity(self.sparsity)
        check_hexadecimal(self.keep, "keep")

    def per_chunk(self, array: np.ndarray, bounds: Sequence[tuple[int, int]]) -> list[Codec]:
        """Return a codec that keeps the whole tensor's strongest channels, once for each chunk.

        Raises
        ------
        NotRepresentable
            If the tensor holds anything but finite floats, or has less than two axes.
        """
        return [replace(self, keep=to_hexadecimal(self._mask(array, bounds)))] * len(bounds)

    def _mask(self, array: np.ndarray, bounds: Bounds) -> np.ndarray:
        """Return the mask of an array's channels, which is looked at in runs of rows."""
        if array.ndim < 2:
            raise NotRepresentable(f"channel: the shape {array.shape} has no second axis")
        if self.keep:
            widened(array, self.id)
            return from_hexadecimal(self.keep, array.shape[1:2], self.id)
        block = array.shape[0], math.prod(array.shape[2:])
        squares = block_squares(array, self.id, block, (1, array.shape[1]), bounds)
        return mark_strongest(squares.reshape(-1), self.sparsity)

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the mask's spec, and that of the kept channels."""
        rows, channels, *rest = spec.shape if len(spec.shape) > 1 else (0, 0)
        kept = channels - round(self.sparsity * channels)
        if self.keep:
            kept = int(self.keep, 16).bit_count()
        return {
            "mask": ArraySpec((channels,), np.dtype(np.bool_)),
            "values": ArraySpec((rows, kept, *rest), spec.dtype),
        }

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return mask and values.

        Raises
        ------
        NotRepresentable
            If the array holds anything but finite floats, or has less than two axes.
        """
        mask = self._mask(array, [(0, len(array))] if array.ndim else [])
        values = kept_values(array, spread(mask, 1, array.shape))
        shape = array.shape[0], int(np.count_nonzero(mask)), *array.shape[2:]
        return {"mask": mask, "values": values.reshape(shape)}

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Put the values where the mask says."""
        if out.ndim < 2:
            raise CodecError(f"channel: the shape {out.shape} has no second axis")
        mask = sound_mask(parts["mask"], self.id)
        restore(spread(mask, 1, out.shape), parts["values"], out, self.id)
