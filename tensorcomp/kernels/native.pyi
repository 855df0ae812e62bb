"""Kernels in C. Arrays are contiguous; table.h has the type and shape of each argument."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

cpu_level: int
"""Which level of the processor's instructions is used: 1, or 3 for x86-64-v3."""

# uniform.c

def uniform_quantize(values: Array, inverse: float, codes: Array, /) -> bool:
    """Set codes (n,) int16 to values × inverse in their own type, rounded, ties to even.

    Return whether all fit in ±32,767, to which the others are clipped.
    """

def uniform_sum_residuals(
    values: Array, inverse: float, codes: Array, stride: int, sums: Array, counts: Array, /
) -> int:
    """Add up how far magnitudes lie above the middle of their cells, in 1/65,536 of a cell.

    Of each `stride` elements the first 64 are taken. sums, counts (M,) int64, zero at first: of the
    codes ±0 … ±(M - 1).
    """

def uniform_confine(values: Array, lowest: int, table: Array, half: float, codes: Array, /) -> bool:
    """Move codes to a neighbour where their value is farther than `half` away.

    table, float64, has the value of each code from `lowest` on, one more at either end than codes
    need. Return whether every value is within reach.
    """

# grid.c

def grid_find_steps(
    values: Array,
    least: Array,
    greatest: Array,
    limit: float,
    mantissa: int,
    lowest: int,
    steps: Array,
    codes: Array,
    /,
) -> bool:
    """Set steps (R,) and codes (R, C) int32 of runs of finite floats, with value = code × step.

    least and greatest (R,) float64 are the runs' magnitudes but zeros; the products are rounded
    to a format of `mantissa` bits whose smallest normal is 2**lowest. A run of zeros gets the step
    of its neighbour. Return whether each run has codes within ±limit.
    """

def grid_restore(codes: Array, steps: Array, mantissa: int, lowest: int, out: Array, /) -> int:
    """Set out (R, C) to codes (R, C), int8 or int16, × steps (R,), rounded to a format.

    Where a step is negative, code -1 is -0.0, and lower ones stand for an integer one higher.
    """

# groups.c: values (R, C); groups are runs of `length` within each row, the last one maybe shorter,
# numbered row by row; what groups have has shape (G,)

def groups_greatest(values: Array, length: int, out: Array, /) -> int:
    """Set `out` to the greatest magnitude in each group of finite values."""

def groups_extremes(values: Array, length: int, least: Array, most: Array, /) -> int:
    """Set least and most to the smallest and the largest value of each group."""

def groups_mean_above(values: Array, length: int, floors: Array, out: Array, /) -> int:
    """Set `out` to the mean magnitude of those above the group's floor; 0 where there are none."""

def groups_signs_above(values: Array, length: int, floors: Array, codes: Array, /) -> int:
    """Set codes (R, C) int8 to the signs of those values whose magnitude is above the floor."""

def groups_normalize(
    values: Array, length: int, scales: Array, offsets: Array, out: Array, /
) -> int:
    """Set out (R, C) to (value - offset) / scale, in doubles; to 0 where the scale is 0."""

def groups_restore(
    codes: Array,
    signed: bool,
    length: int,
    scales: Array,
    offsets: Array,
    limit: float,
    out: Array,
    /,
) -> int:
    """Set out (R, C) to code × scale + offset, in doubles, kept within ±limit.

    codes (R, C): int8 or uint8, which `signed` tells apart, or float32 as uint32.
    """

# codebooks.c

def codebook_look_up(codes: Array, lowest: int, table: Array, out: Array, /) -> int:
    """Set out[i] = table[codes[i] - lowest], as words; codes beyond the table mean its last.

    codes have one or two bytes, and differences wrap around in them.
    """

def palette_mark(words: Array, present: Array, /) -> int:
    """Set present[word] to 1 for each word of one or two bytes."""

def palette_number(words: Array, found: Array, codes: Array, /) -> int:
    """Give each distinct word of 4 or 8 bytes a number, in the order in which they occur.

    Sets codes (n,) uint16, and found[number] to the word. Return how many there are, or -1 if they
    are more than `found` has room for (or were made to collide).
    """

def codebook_histogram(words: Array, shift: int, counts: Array, sums: Array, /) -> int:
    """Count keys of singles, given as bits, by the bits above `shift`; add up the bits below.

    counts, sums (2**(32 - shift),) int64, zeros at first. A key is an unsigned integer: greater
    keys are greater floats.
    """

def codebook_assign(
    words: Array, shift: int, starts: Array, thresholds: Array, probes: int, codes: Array, /
) -> int:
    """Set codes (n,) to the number of thresholds below each float, given as its bits.

    starts (bins + 1,): how many thresholds lie in bins below, a bin being a key's bits above
    `shift`; thresholds (K + 1,) uint64: keys, ascending, the last beyond every key. A bin holds
    less than 2**probes thresholds.
    """

def codebook_lloyd(
    points: Array, counts: Array, passes: int, centers: Array, masses: Array, error: Array, /
) -> int:
    """Improve centers (K,), ascending, for points (B,), ascending, until it gains little.

    Sets masses (K,) to how many points were nearest to each before the last pass, and error (1,)
    to the sum of their squared distances.
    """

def codebook_cut(points: Array, masses: Array, centers: Array, /) -> int:
    """Set centers (K,) to the means of the K runs of points (M,), ascending, of least error."""

# stochastic.c

def stochastic_round(
    values: Array, length: int, scales: Array, top: int, key: int, start: int, codes: Array, /
) -> int:
    """Set codes (R, C) int8 to value / scale of the group, rounded at random to ±top.

    Groups are those of `groups_greatest`. An element is rounded up with a probability that equals
    its fraction; it draws the number of its index, in row-major order, plus `start`. A scale of 0
    gives codes of 0.
    """

def stochastic_find_draws(
    key: int, first: int, n: int, limit: int, positions: Array, numbers: Array, /
) -> int:
    """Write the i below n of which `first` + i draws at most `limit`, and the numbers drawn.

    positions (m,) int64, numbers (m,) uint64. Return how many there are, or -1 if there is no room
    left for another block of 256.
    """

# linear.c

def linear_multiply(left: Array, right: Array, out: Array, /) -> int:
    """Set out (m, n) to left (m, r) × right (r, n); terms are added from the first to the last."""

def linear_nearest(vectors: Array, columns: Array, codes: Array, /) -> int:
    """Set codes (N,) to the place of the nearest of K vectors to each of `vectors` (N, W).

    columns (W, K): the K vectors, one a column. Of several the first is taken.
    """

def linear_orthonormalize(vector: Array, others: Array, least: float, /) -> bool:
    """Make a vector (n,) orthonormal to others (r, n), which are so themselves.

    All float64, by Gram and Schmidt, twice; terms are added from the first to the last. Return whether the others leave a part
    of more than `least`.
    """

# errors.c

def errors_sum(x: Array, y: Array, out: Array, /) -> int:
    """Set out (7,) float64 to Σ|x-y|, Σ(x-y)², Σx², Σy², Σxy, max |x-y| and max |x|.

    All elements are finite; sums that are not tell that they were not, or that squares overflow.
    """

def halves_round(words: Array, out: Array, /) -> int:
    """Round float32s (n,), given as uint32, to float16s as uint16, ties to even."""

# gradients.c

def is_finite(values: NDArray[np.float32], /) -> bool:
    """Return whether no value, (n,), is infinite or NaN."""
