"""Loops over groups: runs of so many elements within each row of a matrix.

The last group of a row may be shorter. Groups are numbered row by row; there are as many as `out`,
`scales` and the like have elements.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bits import U, both
from tensorcomp.kernels.jit import jit


@jit
def greatest(words, length, mask, out):
    """Set out (G,) to the greatest magnitude in each group, as bits.

    words (R, C) unsigned, the bits of finite floats; mask, of their type: all bits but the sign.
    """
    g = U(0)
    for r in range(words.shape[0]):
        row = words[r]
        for start in range(0, row.size, length):
            run = row[start : start + length]
            high = both(mask, U(0))
            for i in range(run.size):
                high = max(high, both(run[i], mask))
            out[g] = high
            g += U(1)


@jit
def extremes(values, length, least, most):
    """Set least and most (G,) to the smallest and the largest of each group of values (R, C)."""
    g = U(0)
    for r in range(values.shape[0]):
        row = values[r]
        for start in range(0, row.size, length):
            run = row[start : start + length]
            low = high = run[0]
            for i in range(run.size):
                value = run[i]
                low = value if value < low else low
                high = value if value > high else high
            least[g] = low
            most[g] = high
            g += U(1)


@jit
def mean_above(values, length, floors, out):
    """Set out (G,) to the mean magnitude of the elements of (R, C) above a floor of their group.

    The sum has a fixed order; a group without such elements gets 0.
    """
    g = U(0)
    for r in range(values.shape[0]):
        row = values[r]
        for start in range(0, row.size, length):
            run = row[start : start + length]
            floor = np.float64(floors[g])
            total = 0.0
            count = 0
            for i in range(run.size):
                magnitude = abs(np.float64(run[i]))
                kept = magnitude > floor
                total += magnitude if kept else 0.0
                count += kept
            out[g] = total / max(count, 1)
            g += U(1)


@jit
def signs_above(values, length, floors, codes):
    """Set codes (R, C) int8 to the signs of those elements that are above their group's floor."""
    g = U(0)
    for r in range(values.shape[0]):
        row, target = values[r], codes[r]
        for start in range(0, row.size, length):
            run, put = row[start : start + length], target[start : start + length]
            floor = floors[g]
            for i in range(run.size):
                put[i] = np.int8(run[i] > floor) - np.int8(run[i] < -floor)
            g += U(1)


@jit
def normalize(values, length, scales, offsets, out):
    """Set out (R, C) to (value - offset) / scale of the group, in doubles; to 0 if scale is 0."""
    g = U(0)
    for r in range(values.shape[0]):
        row, target = values[r], out[r]
        for start in range(0, row.size, length):
            run, put = row[start : start + length], target[start : start + length]
            scale, offset = np.float64(scales[g]), np.float64(offsets[g])
            if scale == 0.0:
                put[:] = 0.0
            else:
                for i in range(run.size):
                    put[i] = (np.float64(run[i]) - offset) / scale
            g += U(1)


@jit
def restore(codes, length, scales, offsets, limit, out):
    """Set out (R, C) to code × scale + offset of the group, in doubles, kept within ±limit."""
    g = U(0)
    for r in range(codes.shape[0]):
        row, target = codes[r], out[r]
        for start in range(0, row.size, length):
            run, put = row[start : start + length], target[start : start + length]
            scale, offset = np.float64(scales[g]), np.float64(offsets[g])
            for i in range(run.size):
                value = np.float64(run[i]) * scale + offset
                put[i] = min(max(value, -limit), limit)
            g += U(1)
