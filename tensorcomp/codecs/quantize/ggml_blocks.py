"""Places of the fields in ggml's quantized blocks, bit by bit.

A block is a C struct without padding that stands for 32, 64 or 256 weights. Where several `Bits`
reach one element, they are joined.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Bits(NamedTuple):
    """Bits of bytes of a block, and the elements that they go to, in that order.

    Of `length` bytes from `start` on, `bits` bits each from `shift` on; to elements from `target`
    on, `step` apart, moved up by `up`.
    """

    start: int
    length: int
    shift: int
    bits: int
    target: int
    step: int = 1
    up: int = 0


@dataclass(frozen=True)
class Block:
    """Fields of one type of block.

    Parameters
    ----------
    codes : tuple of Bits
    span : int
        Codes in a row that share a step.
    scale : int or None
        Where the fp16 scale is.
    minimum : int or None
        Where the fp16 minimum, or scale of minima, is.
    scales : tuple of Bits
        Factors of the scale, one for each span.
    pairs : int
        So many factors of the scale and as many of the minimum stand in `scales` by turns; 0 where
        all are factors of the scale.
    centre : int or None
        The code of zero where codes have signs, and that of the factors likewise.
    factor_centre : int or None
    magnitudes : bool
        Whether the top bit of a code of 4 bits is its sign.
    """

    codes: tuple[Bits, ...]
    span: int
    scale: int | None = 0
    minimum: int | None = None
    scales: tuple[Bits, ...] = ()
    pairs: int = 0
    centre: int | None = None
    factor_centre: int | None = None
    magnitudes: bool = False


def width(runs: tuple[Bits, ...]) -> int:
    """Return the number of elements that runs fill."""
    return max(run.target + (run.length - 1) * run.step + 1 for run in runs)


def bits_of(runs: tuple[Bits, ...]) -> int:
    """Return the bits of the elements that runs fill."""
    return max(run.up + run.bits for run in runs)


def _packed(start: int, length: int, count: int, group: int, up: int = 0) -> tuple[Bits, ...]:
    """Return runs of elements of `count` bits: those in the low bits of a group come first."""
    each = 8 // count
    if group == 1:
        return tuple(Bits(start, length, count * k, count, k, each, up) for k in range(each))
    return tuple(
        Bits(start + first, group, count * k, count, each * first + group * k, 1, up)
        for first in range(0, length, group)
        for k in range(each)
    )


def _factors(start: int) -> tuple[Bits, ...]:
    """Return those of 12 bytes: 8 scales and 8 minima of 6 bits, four of each by turns."""
    low, top = Bits(start, 8, 0, 6, 0), Bits(start, 8, 6, 2, 8, up=4)
    return low, top, Bits(start + 8, 4, 0, 4, 8), Bits(start + 8, 4, 4, 4, 12)


BLOCKS: Mapping[str, Block] = {
    "Q4_0": Block(_packed(2, 16, 4, 16), 32, centre=8),
    "Q4_1": Block(_packed(4, 16, 4, 16), 32, minimum=2),
    "Q5_0": Block(_packed(6, 16, 4, 16) + _packed(2, 4, 1, 1, 4), 32, centre=16),
    "Q5_1": Block(_packed(8, 16, 4, 16) + _packed(4, 4, 1, 1, 4), 32, minimum=2),
    "Q8_0": Block(_packed(2, 32, 8, 32), 32, centre=0),
    "Q2_K": Block(
        *(_packed(16, 64, 2, 32), 16, 80), minimum=82, scales=_packed(0, 16, 4, 16), pairs=16
    ),
    "Q3_K": Block(
        *(_packed(32, 64, 2, 32) + _packed(0, 32, 1, 32, 2), 16, 108),
        scales=_packed(96, 8, 4, 8) + _packed(104, 4, 2, 4, 4),
        centre=4,
        factor_centre=32,
    ),
    "Q4_K": Block(_packed(16, 128, 4, 32), 32, minimum=2, scales=_factors(4), pairs=4),
    "Q5_K": Block(
        *(_packed(48, 128, 4, 32) + _packed(16, 32, 1, 32, 4), 32),
        minimum=2,
        scales=_factors(4),
        pairs=4,
    ),
    "Q6_K": Block(
        *(_packed(0, 128, 4, 64) + _packed(128, 64, 2, 32, 4), 16, 208),
        scales=_packed(192, 16, 8, 16),
        centre=32,
        factor_centre=0,
    ),
    "IQ4_NL": Block(_packed(2, 16, 4, 16), 32, centre=8),
    "IQ4_XS": Block(
        *(_packed(8, 128, 4, 16), 32),
        scales=_packed(4, 4, 4, 1) + _packed(2, 2, 2, 1, 4),
        centre=8,
        factor_centre=32,
    ),
    "TQ1_0": Block(_packed(0, 52, 8, 52), 52, 52),
    "TQ2_0": Block(_packed(0, 64, 2, 32), 256, 64, centre=1),
    "MXFP4": Block(
        *(_packed(1, 16, 4, 16), 32, None),
        scales=_packed(0, 1, 8, 1),
        centre=8,
        magnitudes=True,
    ),
    "NVFP4": Block(
        *(_packed(4, 32, 4, 8), 16, None),
        scales=_packed(0, 4, 8, 4),
        centre=8,
        magnitudes=True,
    ),
}
