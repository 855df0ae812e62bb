"""Structured pruning of blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import ArraySpec, Codec
from tensorcomp.codecs.sparse.masks import kept_values
from tensorcomp.codecs.sparse.structured import StructuredPruning, to_hexadecimal
from tensorcomp.errors import CodecError

_MAX_SIDE = 1 << 20


@dataclass(frozen=True)
class Block(StructuredPruning):
    """Set a fraction of a matrix's blocks to zero, those of lowest L2 norm.

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
    default_parts: ClassVar[Mapping[str, str]] = {
        "mask": "gaps",
        "origin": "raw",
        "values": "floats",
    }
    height: int = argument(4, least=1, most=_MAX_SIDE)
    width: int = argument(4, least=1, most=_MAX_SIDE)
    sparsity: float = argument(0.5, least=0, most=1)
    keep: str = ""
    offset: int = argument(0, least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.offset >= self.height:
            raise ValueError(f"expected an offset below the height, got {self.offset}")

    def per_chunk(self, array: np.ndarray, bounds: Sequence[tuple[int, int]]) -> list[Codec]:
        """Return for each chunk the codec that keeps its share of the blocks.

        Blocks are kept that the tensor keeps.
        """
        mask = self.kept_blocks(array, bounds)
        codecs: list[Codec] = []
        for start, stop in bounds:
            first, offset = divmod(self.offset + start, self.height)
            own = mask[first : first + self._down(stop - start, offset)]
            codecs.append(replace(self, keep=to_hexadecimal(own), offset=offset))
        return codecs

    def _down(self, rows: int, offset: int) -> int:
        """Return how many blocks a number of rows touch."""
        return -(-(offset + rows) // self.height) if rows else 0

    def _across(self, shape: tuple[int, ...]) -> int:
        return -(-math.prod(shape[1:]) // self.width)

    def blocks(self, shape: tuple[int, ...]) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return a block's rows and columns, and how many blocks down and across."""
        count = self._down(shape[0], self.offset), self._across(shape)
        return (self.height, self.width), count

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the specs of the blocks' mask, their origin and the values."""
        return {
            "mask": ArraySpec((-1, self._across(spec.shape)), np.dtype(np.bool_)),
            "origin": ArraySpec((), np.dtype("<u4")),
            "values": ArraySpec((-1,), spec.dtype),
        }

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return mask, origin and values."""
        mask = self.kept_blocks(array)
        mask = mask if mask.size else mask[:0]
        parts = {"mask": mask, "origin": np.array(self.offset, np.uint32)}
        return {**parts, "values": kept_values(array, self.spread(parts, array.shape))}

    def spread(self, parts: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
        """Return the mask of an array's elements from that of its blocks.

        The part ``origin`` says where the first block starts.
        """
        if 0 in shape:
            return np.empty(shape, np.bool_)
        mask, offset = parts["mask"], int(parts["origin"])
        if offset >= self.height or len(mask) != self._down(shape[0], offset):
            raise CodecError(
                f"block: expected a mask for {shape} from row {offset}, got {len(mask)} blocks down"
            )
        columns = mask[:, np.arange(math.prod(shape[1:])) // self.width]
        return columns[(np.arange(shape[0]) + offset) // self.height].reshape(shape)
