"""Structured pruning: blocks or slices of a matrix are kept or set to zero."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Mapping

import numpy as np

from tensorcomp.codecs.bit_views import as_words, readable
from tensorcomp.codecs.rounding import widened
from tensorcomp.codecs.sparse.masks import Pruning, restore, sound_mask
from tensorcomp.codecs.sparse.selection import Bounds, mark_largest
from tensorcomp.errors import CodecError, NotRepresentable
from tensorcomp.kernels import native


class StructuredPruning(Pruning):
    """Base class of codecs that set the blocks of lowest norm to zero.

    The matrix is the first axis × all others. Subclasses have the fields `sparsity`, a part of the
    blocks from 0 to 1, and `keep`, a mask of the blocks to keep in place of a sparsity: hexadecimal
    digits, two for each eight blocks, the first one in the highest bit.
    """

    sparsity: float
    keep: str
    offset: int = 0  # rows of the first blocks that lie above the array

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch("([0-9a-f]{2})*", self.keep):
            raise ValueError(f"expected keep to be pairs of the digits 0-9a-f, got {self.keep!r}")

    @abstractmethod
    def blocks(self, shape: tuple[int, ...]) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return a block's rows and columns, and how many blocks down and across."""

    def kept_blocks(self, array: np.ndarray, bounds: Bounds | None = None) -> np.ndarray:
        """Return the mask of an array's blocks; it is looked at in runs of rows.

        Of b blocks round(sparsity × b), ties to even, are dropped: those of the lowest norms, of
        equal ones the first.

        Raises
        ------
        NotRepresentable
            If the array has less than two axes, holds anything but finite floats, their squares
            overflow, or `keep` is not a mask of its blocks.
        """
        if array.ndim < 2:
            raise NotRepresentable(f"{self.id}: expected two axes or more, got {array.shape}")
        size, count = self.blocks(array.shape)
        if self.keep:
            widened(array, self.id)
            return self._given_mask(count)
        squares = self._squares(array, size, count, bounds or [(0, len(array))])
        keep = squares.size - round(self.sparsity * squares.size)
        return mark_largest(as_words(squares).reshape(-1), keep, first=False).reshape(count)

    def _squares(
        self, array: np.ndarray, size: tuple[int, int], count: tuple[int, int], bounds: Bounds
    ) -> np.ndarray:
        """Return the sums of squares of blocks, row by row: the same however rows are cut."""
        sums = np.zeros(count)
        array = readable(array)
        for start, stop in bounds:
            rows = widened(array[start:stop], self.id)
            if rows.size:
                rows = rows.reshape(stop - start, -1)
                native.selection_add_squares(rows, start + self.offset, *size, sums)
        if not np.isfinite(sums).all():
            raise NotRepresentable(f"{self.id}: the squares of the elements overflow")
        sums.flags.writeable = False
        return sums

    def _given_mask(self, shape: tuple[int, int]) -> np.ndarray:
        """Return the mask of this shape that `keep` holds."""
        size = math.prod(shape)
        bits = np.unpackbits(np.frombuffer(bytes.fromhex(self.keep), np.uint8))
        if bits.size != -(-size // 8) * 8 or bits[size:].any():
            raise NotRepresentable(
                f"{self.id}: expected keep to be a mask of the shape {shape}, got {self.keep!r:.60}"
            )
        return bits[:size].astype(np.bool_).reshape(shape)

    @abstractmethod
    def spread(self, parts: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
        """Return the mask of an array's elements from the parts but for the values."""

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Put the values where the mask says."""
        if out.ndim < 2:
            raise CodecError(f"{self.id}: expected two axes or more, got {out.shape}")
        parts = {**parts, "mask": sound_mask(parts["mask"], self.id)}
        restore(self, self.spread(parts, out.shape), parts["values"], out)


def to_hexadecimal(mask: np.ndarray) -> str:
    """Return a mask as hexadecimal digits, the first element in the highest bit."""
    return np.packbits(mask.reshape(-1)).tobytes().hex()
