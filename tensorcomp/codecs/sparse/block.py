"""Structured pruning of blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import ArraySpec, Codec, Transform
from tensorcomp.codecs.rounding import widened
from tensorcomp.codecs.sparse import selection
from tensorcomp.errors import CodecError, NotRepresentable

_LARGEST = 1 << 20


@dataclass(frozen=True)
class Block(Transform):
    """Set exactly that part of the blocks of a matrix to zero whose L2 norm is lowest.

    The matrix is the first axis × all others, cut into blocks of height × width; those at its lower
    and right edges may be smaller, and count like others. Of b blocks round(sparsity × b), ties to
    even, are set to +0.0; of equal norms the first ones are, in row-major order. Of a tensor in
    chunks, the blocks are the whole tensor's.

    Parts: ``mask``, bool, (blocks down, blocks across), true where a block is kept; ``origin``,
    uint32, rows of the first blocks that lie above the array; ``values``, the kept elements as they
    are, one-dimensional, of the array's dtype, in row-major order of the elements.

    Error: the norm of the blocks that are set to zero. Kept blocks are exact unless their subtree
    loses something.

    Parameters
    ----------
    height, width : int
        Of a block.
    sparsity : float
        From 0 to 1.
    keep : str
        A mask of the blocks to keep, in place of a sparsity: hexadecimal digits, two for each eight
        blocks, the first one in the highest bit.
    offset : int
        Rows of the first blocks that lie above the array, less than a height.

    Notes
    -----
    Cost: O(n), 2 to 4 ns an element to encode, 2 ns to decode, without the parts' coders. For
    kernels that skip blocks of zeros. Not for small errors (`uniform`): a block's norm is seldom
    near zero. Not for arrays with NaN or infinity, nor of less than two axes.

    References
    ----------
    Narang, Undersander & Diamos 2017, "Block-sparse recurrent neural networks"; Gray, Radford &
    Kingma 2017, "GPU kernels for block-sparse weights".
    """

    id: ClassVar[str] = "block"
    lossless: ClassVar[bool] = False
    zeros: ClassVar[str] = "passed on"
    default_parts: ClassVar[Mapping[str, str]] = {
        "mask": "gaps",
        "origin": "raw",
        "values": "floats",
    }
    height: int = argument(4, least=1, most=_LARGEST)
    width: int = argument(4, least=1, most=_LARGEST)
    sparsity: float = argument(0.5, least=0, most=1)
    keep: str = ""
    offset: int = argument(0, least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        selection.check_hexadecimal(self.keep, "keep")
        if self.offset >= self.height:
            raise ValueError(f"expected an offset below the height, got {self.offset}")

    def is_promising(self, sample: np.ndarray, rows: int) -> bool:
        """Return whether most elements are next to nothing."""
        return selection.has_small_elements(sample)

    def per_chunk(self, array: np.ndarray, bounds: Sequence[tuple[int, int]]) -> list[Codec]:
        """Return for each chunk the codec that keeps those of its blocks that the tensor keeps.

        Raises
        ------
        NotRepresentable
            If the tensor holds anything but finite floats, or has less than two axes.
        """
        mask = self._mask(array, bounds)
        codecs: list[Codec] = []
        for start, stop in bounds:
            first, offset = divmod(self.offset + start, self.height)
            own = mask[first : first + self._down(stop - start, offset)]
            codecs.append(replace(self, keep=selection.to_hexadecimal(own), offset=offset))
        return codecs

    def _down(self, rows: int, offset: int) -> int:
        """Return how many blocks so many rows touch."""
        return -(-(offset + rows) // self.height) if rows else 0

    def _across(self, shape: tuple[int, ...]) -> int:
        return -(-math.prod(shape[1:]) // self.width)

    def _mask(self, array: np.ndarray, bounds: selection.Bounds) -> np.ndarray:
        """Return the mask of an array's blocks; it is looked at in runs of rows."""
        if array.ndim < 2:
            raise NotRepresentable(f"block: the shape {array.shape} is no matrix")
        shape = self._down(array.shape[0], self.offset), self._across(array.shape)
        if self.keep:
            widened(array, self.id)
            return selection.from_hexadecimal(self.keep, shape, self.id)
        size = self.height, self.width
        squares = selection.block_squares(array, self.id, size, shape, bounds, self.offset)
        return selection.mark_strongest(squares, self.sparsity)

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the specs of the blocks' mask, their origin and the values."""
        return {
            "mask": ArraySpec((-1, self._across(spec.shape)), np.dtype(np.bool_)),
            "origin": ArraySpec((), np.dtype("<u4")),
            "values": ArraySpec((-1,), spec.dtype),
        }

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return mask, origin and values.

        Raises
        ------
        NotRepresentable
            If the array holds anything but finite floats, or has less than two axes.
        """
        mask = self._mask(array, [(0, len(array))] if array.ndim else [])
        values = selection.kept_values(array, self._spread(mask, array.shape, self.offset))
        return {
            "mask": mask if mask.size else mask[:0],
            "origin": np.array(self.offset, np.uint32),
            "values": values,
        }

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Put the values where the mask says."""
        if out.ndim < 2:
            raise CodecError(f"block: the shape {out.shape} is no matrix")
        mask, offset = selection.sound_mask(parts["mask"], self.id), int(parts["origin"])
        if out.size and (offset >= self.height or len(mask) != self._down(len(out), offset)):
            raise CodecError(f"block: {len(mask)} blocks down from row {offset}, for {out.shape}")
        selection.restore(self._spread(mask, out.shape, offset), parts["values"], out, self.id)

    def _spread(self, mask: np.ndarray, shape: tuple[int, ...], offset: int) -> np.ndarray:
        """Return the mask of an array's elements from that of its blocks."""
        if 0 in shape:
            return np.empty(shape, np.bool_)
        columns = mask[:, np.arange(math.prod(shape[1:])) // self.width]
        return columns[(np.arange(shape[0]) + offset) // self.height].reshape(shape)
