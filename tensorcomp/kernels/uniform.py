"""Uniform quantization: codes, the middle of what fell into each cell, values looked up again.

The loops hold nothing that keeps a compiler from vector registers: no branches, no early ends.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bits import U
from tensorcomp.kernels.jit import jit

_TO_SINGLE = np.float32(1.5 * 2.0**23)  # adding and subtracting it rounds to the nearest integer
_TO_DOUBLE = 1.5 * 2.0**52
_LARGEST = 32767
RUN = 64  # neighbours that are sampled together
SCALE = 1 << 16  # residuals are summed in this part of a cell


@jit
def quantize_singles(values, inverse, codes):
    """Set codes (n,) int16 to values (n,) × inverse, float32, rounded; return whether all fit."""
    limit = np.float32(_LARGEST)
    beyond = False
    for i in range(values.size):
        code = (values[i] * inverse + _TO_SINGLE) - _TO_SINGLE
        beyond |= abs(values[i] * inverse) > limit
        codes[i] = np.int32(min(max(code, -limit), limit))
    return not beyond


@jit
def quantize_doubles(values, inverse, codes):
    """Do as `quantize_singles` does, in float64."""
    limit = np.float64(_LARGEST)
    beyond = False
    for i in range(values.size):
        code = (values[i] * inverse + _TO_DOUBLE) - _TO_DOUBLE
        beyond |= abs(values[i] * inverse) > limit
        codes[i] = np.int32(min(max(code, -limit), limit))
    return not beyond


@jit
def sum_residuals(values, inverse, codes, stride, sums, counts):
    """Add up how far magnitudes lie above the middle of their cells, in 1/65,536 of a cell.

    Of each `stride` elements the first 64 are taken. sums, counts (M,) int64, zero at first: of the
    codes ±0 … ±(M - 1).
    """
    for start in range(0, values.size, stride):
        for i in range(start, min(start + RUN, values.size)):
            magnitude = abs(np.int64(codes[i]))
            if magnitude < sums.size:
                above = abs(np.float64(values[i])) * inverse - magnitude
                sums[magnitude] += np.int64(np.rint(above * SCALE))
                counts[magnitude] += 1


@jit
def look_up(codes, lowest, table, out):
    """Set out[i] = table[codes[i] - lowest]; no code (n,) int16 is below `lowest` or too high."""
    for i in range(U(codes.size)):
        out[i] = table[U(np.int64(codes[i]) - lowest)]


@jit
def confine(values, lowest, table, half, codes):
    """Move codes to a neighbour where their value in `table` is farther than `half` away.

    values (n,) float32 or float64; table float64, one value for each code from `lowest` on, one
    more at either end than codes need. Returns whether every value is within reach.
    """
    for i in range(values.size):
        value = np.float64(values[i])
        place = np.int64(codes[i]) - lowest
        if abs(value - table[place]) <= half:
            continue
        if abs(value - table[place - 1]) <= half:
            codes[i] -= 1
        elif abs(value - table[place + 1]) <= half:
            codes[i] += 1
        else:
            return False
    return True
