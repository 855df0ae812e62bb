"""Kernels in C. Arrays are contiguous; table.h has the type and shape of each argument."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

cpu_level: int
"""Which level of the processor's instructions is used: 1, or 3 for x86-64-v3."""

# trellis.c

def trellis_encode(
    values: Array, scale: float, states: int, every: int, codes: Array, sums: Array, counts: Array, /
) -> bool:
    """Set `codes` to those of least squared error of values (n,) float32 or float64, finite.

    scale is 32,768 / step; states those of the machine. codes int16, n rounded up to a multiple of
    64. Of each `every` rows of 64 elements, one is added to sums and counts (M,) int64, or none
    where it is 0: how far magnitudes lie above that of their points 0 … M - 1 half steps from 0,
    in 1/32,768 step. Returns whether no element is NaN or has more than 32,766 steps.
    """

def trellis_decode(
    codes: Array, states: int, lowest: int, table: Array, out: Array, /
) -> None:
    """Set out[i] = table[2 codes[i] - quantizer of i - lowest]: the table has every such place."""

# gradients.c

def is_finite(values: NDArray[np.float32], /) -> bool:
    """Return whether no value, (n,), is infinite or NaN."""
