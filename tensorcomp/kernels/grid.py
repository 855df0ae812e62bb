"""Integer grids in floats: the step of a run of values, found by intervals and proved by products.

A run is a float32 or float64 array of finite values, each of which is meant to be q × step, rounded
once to a format of `mantissa` bits (its fraction) whose smallest normal is 2**lowest. Each value
then confines the step to an interval of its own rounding; a wrong guess leaves none within a few
values, a right one a few floats, which are tried on all values.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bits import U
from tensorcomp.kernels.jit import jit

_SINGLE, _DOUBLE = 23, 52
_BLOCK = 256  # values between two looks at whether all is well
_SAMPLE = 32  # values that narrow the interval at first
_PASSES = 4
_NEIGHBOURS = 4  # floats on either side of the interval's middle that are tried
_WIDEN = 2.0**-50  # interval ends are doubles themselves
_TO_INTEGER = 1.5 * 2.0**52  # adding and subtracting it rounds to the nearest integer


@jit
def _bits_of(value):
    return np.float64(value).view(np.uint64)


@jit
def _float_of(bits):
    return np.uint64(bits).view(np.float64)


@jit
def _quantum(value, mantissa, lowest):
    """Return the distance of the format's floats at `value`."""
    exponent = max(np.int64(_bits_of(value) >> U(52)) & 2047, lowest + 1023)
    unit = exponent - mantissa
    return _float_of(U(unit) << U(52) if unit > 0 else U(1) << U(unit + 51))


@jit
def _product(q, step, mantissa, lowest):
    """Return q × step in double arithmetic, then rounded to the format."""
    exact = q * step
    if mantissa == _DOUBLE:
        return exact
    if mantissa == _SINGLE:
        return np.float64(np.float32(exact))
    exponent = max(np.int64(_bits_of(exact) >> U(52)) & 2047, lowest + 1023)
    anchor = 1.5 * _float_of(U(exponent + 52 - mantissa) << U(52))
    return (exact + anchor) - anchor


@jit
def extents(words, least, greatest):
    """Set the least magnitude that is not zero and the greatest, as bits, of runs of floats.

    words (R, C) unsigned, the floats' bits; least, greatest (R,) of their dtype, all ones and 0
    where all floats are zero. Returns whether −0.0 occurs.
    """
    mask = (U(1) << U(8 * words.itemsize - 1)) - U(1)
    signed = False
    for r in range(words.shape[0]):
        run = words[r]
        low, high, zeros = ~U(0), U(0), U(0)
        for c in range(run.size):
            magnitude = U(run[c]) & mask
            high = max(high, magnitude)
            low = min(low, magnitude - U(1))
            zeros |= U((magnitude == U(0)) & (U(run[c]) != U(0)))
        least[r] = low + U(1) if high > U(0) else ~U(0)
        greatest[r] = high
        signed |= zeros != U(0)
    return signed


@jit
def quantize(values, step, mantissa, lowest, limit, codes):
    """Set codes[i] to the q with q × step = values[i]; return whether each has one in ±limit."""
    if not 0.0 < step < np.inf:
        return False
    inverse = 1.0 / step
    if not inverse < np.inf:
        return False
    for start in range(0, values.size, _BLOCK):
        stop = min(start + _BLOCK, values.size)
        sound = True
        for i in range(start, stop):
            value = np.float64(values[i])
            q = (value * inverse + _TO_INTEGER) - _TO_INTEGER
            sound &= (abs(q) <= limit) & (_product(q, step, mantissa, lowest) == value)
            codes[i] = np.int32(min(max(q, -limit), limit))
        if not sound:
            return False
    return True


@jit
def _interval(magnitude, mantissa, lowest):
    """Return the ends of the numbers that the format rounds to `magnitude`, a little widened."""
    half = 0.5 * _quantum(magnitude, mantissa, lowest)
    below = half
    if _bits_of(magnitude) << U(12) == U(0) and magnitude > 2.0**lowest:
        below = 0.5 * half  # a power of two: the floats below it stand closer
    return (magnitude - below) * (1.0 - _WIDEN), (magnitude + half) * (1.0 + _WIDEN)


@jit
def _narrow(values, stride, low, high, limit, mantissa, lowest):
    """Return the interval of steps that explains every stride-th value; low > high if none does."""
    for i in range(0, values.size, stride):
        magnitude = abs(np.float64(values[i]))
        if magnitude == 0.0:
            continue
        least, greatest = _interval(magnitude, mantissa, lowest)
        fewest = np.ceil(least / high)
        most = np.floor(greatest / low)
        if fewest > most or fewest > limit:
            return 1.0, 0.0
        if fewest == most and most > 0.0:  # otherwise it does not tell yet
            low = max(low, least / most)
            high = min(high, greatest / most)
            if low > high:
                return low, high
    return low, high


@jit
def _roundest(low, high, margin):
    """Return the float of fewest significant bits in an interval without its margins.

    The ends of the interval are round themselves, but there the rounding of a product is a tie.
    """
    away = (high - low) * margin
    last = _bits_of(high - away)
    differ = (_bits_of(low + away) - U(1)) ^ last
    shift = U(0)
    while differ >> (shift + U(1)) != U(0):
        shift += U(1)
    return _float_of((last >> shift) << shift)


@jit
def _settle(values, magnitude, q, limit, mantissa, lowest, codes):
    """Return the step that makes `magnitude` q steps and explains all values, or 0."""
    least, greatest = _interval(magnitude, mantissa, lowest)
    low, high = max(least / q, 2.0**-1022), greatest / q
    stride = max(values.size // _SAMPLE, 1)
    for _ in range(_PASSES):  # a few values first, all of them if that does not do
        before = high - low
        low, high = _narrow(values, stride, low, high, limit, mantissa, lowest)
        if low > high:
            return 0.0
        if stride > 1 or high - low < before:
            for margin in (2.0**-10, 0.25):
                step = _roundest(low, high, margin)
                if quantize(values, step, mantissa, lowest, limit, codes):
                    return step
        stride = 1
    middle = _bits_of(low) + (_bits_of(high) - _bits_of(low)) // U(2)
    for k in range(2 * _NEIGHBOURS + 1):
        step = _float_of(middle + U(k) - U(_NEIGHBOURS))
        if quantize(values, step, mantissa, lowest, limit, codes):
            return step
    return 0.0


@jit
def find_steps(values, least, greatest, limit, mantissa, lowest, steps, codes):
    """Set steps (R,) and codes (R, C) of the runs `values` (R, C), C > 0, all finite.

    Returns whether each run is a grid of codes within ±limit. least and greatest (R,) are the runs'
    magnitudes, as `extents` finds them. The greatest code of the run before is tried for the
    greatest magnitude, then each fraction of the least magnitude that keeps the greatest within the
    limit, from the coarsest on. A run of zeros gets the step of its neighbour.
    """
    step = 0.0
    code = 0.0
    waiting = 0
    for r in range(values.shape[0]):
        run, out = values[r], codes[r]
        if greatest[r] == 0.0:
            out[:] = 0
            steps[r] = step
            continue
        found = 0.0
        if code > 0.0:
            found = _settle(run, greatest[r], code, limit, mantissa, lowest, out)
        q = 1.0
        ratio = greatest[r] / least[r]
        error = _quantum(greatest[r], mantissa, lowest) / greatest[r]
        error = 0.6 * (error + _quantum(least[r], mantissa, lowest) / least[r]) + _WIDEN
        while found == 0.0 and q <= limit and q * ratio * (1.0 - error) <= limit:
            guess = q * ratio
            if abs(guess - np.rint(guess)) <= guess * error:
                found = _settle(run, least[r], q, limit, mantissa, lowest, out)
            q += 1.0
        if found == 0.0:
            return False
        step = found
        code = np.rint(greatest[r] / step)
        steps[r] = step
        if waiting < r and steps[waiting] == 0.0:
            steps[waiting:r] = step
        waiting = r + 1
    return True


@jit
def lower(values, codes):
    """Make room for −0.0 at code −1: every negative code (n,) moves down by one."""
    for i in range(codes.size):
        value = np.float64(values[i])
        signed_zero = (value == 0.0) & (_bits_of(value) != U(0))
        codes[i] -= np.int32((codes[i] < 0) | signed_zero)


@jit
def restore(codes, steps, mantissa, lowest, out):
    """Set out (R, C) to codes (R, C) × steps (R,); where a step is negative, undo `lower`."""
    for r in range(steps.size):
        step = abs(steps[r])
        lowered = _bits_of(steps[r]) >> U(63) != U(0)
        run, row = codes[r], out[r]
        if lowered:
            for c in range(row.size):
                q = np.int32(run[c])
                value = _product(np.float64(q + np.int32(q < 0)), step, mantissa, lowest)
                row[c] = -0.0 if q == -1 else value
        else:
            for c in range(row.size):
                row[c] = _product(np.float64(run[c]), step, mantissa, lowest)
