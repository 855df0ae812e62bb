"""Scalar codebooks: histograms of floats, Lloyd's iteration, the nearest of ascending numbers.

Floats are ordered by their bits: `_key` of a float is an unsigned integer of the same width, and
greater keys are greater floats. The top bits of a key are its bin.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bits import U
from tensorcomp.kernels.jit import jit, quick

_MOST_PASSES = 50
_SMALL_GAIN = 1e-5  # of the error: what a pass must gain for another one
_ROUNDS_OF_CAPPING = 64
_THIRD = U(0x2A9F7893E3D6A000)  # two thirds of the bits of 1.0, and a little less


@jit
def _key(word, bits):
    """Return the key of a float given as its bits, so many of them."""
    top = U(1) << U(bits - 1)
    ones = (top << U(1)) - U(1)
    sign = U(word) >> U(bits - 1)
    return U(word) ^ (top | (ones * sign))


@jit
def order(words, out):
    """Set out (n,) uint64 to the keys of floats, given as their bits (n,)."""
    bits = 8 * words.itemsize
    for i in range(words.size):
        out[i] = _key(words[i], bits)


@jit
def histogram(words, shift, counts, sums):
    """Count the keys of singles (n,), given as their bits, by the bits above `shift`.

    counts, sums (2**(32 - shift),) int64, zeros at first: sums adds up the bits below, in which the
    floats of a bin are linear.
    """
    low = (U(1) << U(shift)) - U(1)
    for i in range(words.size):
        key = _key(words[i], 32)
        at = (key >> U(shift)) & U(counts.size - 1)
        counts[at] += 1
        sums[at] += np.int64(key & low)


@jit
def assign(words, shift, starts, thresholds, probes, codes):
    """Set codes (n,) to the number of thresholds below each float, given as its bits.

    starts (bins + 1,): how many thresholds lie in bins below; thresholds (K + 1,) uint64: keys,
    ascending, the last of them beyond every key. A bin holds less than 2**probes thresholds.
    """
    bits = 8 * words.itemsize
    last = U(thresholds.size - 1)
    final = U(starts.size - 2)
    for i in range(words.size):
        key = _key(words[i], bits)
        at = min(key >> U(shift), final)
        low, high = U(starts[at]), U(starts[at + U(1)])
        for _ in range(probes):
            middle = (low + high) >> U(1)
            below = thresholds[min(middle, last)] < key
            low = middle + U(1) if below else low
            high = high if below else middle
        codes[i] = low


@quick
def _cube_root(x):
    """Return the cube root of a double, 0 or normal and positive, by Newton's iteration."""
    if x == 0.0:
        return 0.0
    root = np.uint64(np.float64(x).view(np.uint64) // U(3) + _THIRD).view(np.float64)
    for _ in range(4):
        root -= (root - x / (root * root)) / 3.0
    return root


@quick
def place(points, counts, centers):
    """Set centers (K,) to where a good quantizer of points (B,), B > 1, ascending, has its own.

    At a fine resolution the density of centers is that of the points to the power of 1/3.
    """
    k = centers.size
    measure = np.empty(points.size - 1)
    total = 0.0
    for i in range(measure.size):
        gap = points[i + 1] - points[i]
        measure[i] = _cube_root(0.5 * (counts[i] + counts[i + 1]) * gap * gap)
        total += measure[i]
    for _ in range(_ROUNDS_OF_CAPPING):  # nothing lies within a gap: one center is enough for it
        most = total / k
        capped = 0.0
        for i in range(measure.size):
            measure[i] = min(measure[i], most)
            capped += measure[i]
        done = capped > 0.9 * total
        total = capped
        if done:
            break
    i = 0
    below = 0.0
    for c in range(k):
        wanted = total * (c + 0.5) / k
        while i < measure.size - 1 and below + measure[i] < wanted:
            below += measure[i]
            i += 1
        outer = i if c < k // 2 else i + 1  # so that points that lie alone get their own
        centers[c] = points[outer]


@jit
def _improve(points, counts, centers, masses, errors):
    """Move each center (K,) to the mean of the points that are nearest to it; return the error.

    Sets masses and errors (K,), the points' number and the sum of their squared distances.
    """
    total = 0.0
    i = 0
    for c in range(centers.size):
        center = centers[c]
        end = 0.5 * (center + centers[c + 1]) if c + 1 < centers.size else np.inf
        mass, first, second = 0.0, 0.0, 0.0
        while i < points.size and points[i] <= end:
            weight = np.float64(counts[i])
            away = points[i] - center
            mass += weight
            first += weight * away
            second += weight * away * away
            i += 1
        masses[c] = mass
        errors[c] = 0.0
        if mass > 0.0:
            centers[c] = center + first / mass
            errors[c] = max(second - first * (first / mass), 0.0)
            total += errors[c]
    return total


@jit
def lloyd(points, counts, centers):
    """Improve centers (K,), ascending, for points (B,), ascending, until it gains little.

    Returns the sum of the squared distances.
    """
    masses, errors = np.empty(centers.size), np.empty(centers.size)
    before = np.inf
    for _ in range(_MOST_PASSES):
        total = _improve(points, counts, centers, masses, errors)
        if not total < before * (1.0 - _SMALL_GAIN):
            break
        before = total
    return total


@jit
def gather(points, counts, centers, means, masses):
    """Set means and masses (M,) of the points nearest to each of centers (M,); return how many.

    Centers that are nearest to no point are left out.
    """
    errors = np.empty(centers.size)
    means[:] = centers
    _improve(points, counts, means, masses, errors)
    count = 0
    for c in range(centers.size):
        if masses[c] > 0.0:
            means[count] = means[c]
            masses[count] = masses[c]
            count += 1
    return count


@jit
def _spread(sums, first, last):
    """Return the squared distances of points first .. last - 1 to their mean."""
    mass = sums[0, last] - sums[0, first]
    total = sums[1, last] - sums[1, first]
    return max(sums[2, last] - sums[2, first] - total * (total / mass), 0.0)


@jit
def cut(points, masses, centers):
    """Set centers (K,) to the means of the K runs of points (M,), ascending, of least error.

    By dynamic programming; where a run of the best cut begins never falls as its end rises.
    """
    k, size = centers.size, points.size
    sums = np.zeros((3, size + 1))
    for i in range(size):
        sums[0, i + 1] = sums[0, i] + masses[i]
        sums[1, i + 1] = sums[1, i] + masses[i] * points[i]
        sums[2, i + 1] = sums[2, i] + masses[i] * points[i] * points[i]
    begins = np.zeros((k, size + 1), np.int32)
    errors, following = np.full(size + 1, np.inf), np.full(size + 1, np.inf)
    for last in range(1, size + 1):
        errors[last] = _spread(sums, 0, last)
    for c in range(1, k):
        begin = begins[c]
        stride = 1
        while 2 * stride <= size:
            stride *= 2
        while stride > 0:
            for last in range(stride, size + 1, 2 * stride):
                low = max(begin[last - stride], c)
                high = begin[last + stride] if last + stride <= size else size
                best, at = np.inf, c
                for first in range(low, min(high, last - 1) + 1):
                    error = errors[first] + _spread(sums, first, last)
                    if error < best:
                        best, at = error, first
                begin[last] = at
                following[last] = best
            stride //= 2
        errors, following = following, errors
    last = size
    for c in range(k - 1, -1, -1):
        first = begins[c, last]
        centers[c] = (sums[1, last] - sums[1, first]) / (sums[0, last] - sums[0, first])
        last = first
