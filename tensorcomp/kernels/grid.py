"""Integer grids in floats: the step of a run of values, found by intervals and proved by products.

A run is a float32 or float64 array of finite values, each of which is meant to be q × step, rounded
once to a format of `mantissa` bits (its fraction) whose smallest normal is 2**lowest. Each value
then confines the step to an interval of its own rounding; a wrong guess leaves none within a few
values, a right one a few floats, which are tried on all values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tensorcomp.kernels.bits import U
from tensorcomp.kernels.jit import jit

_SINGLE, _DOUBLE = 23, 52
_BLOCK = 256  # values between two looks at whether all is well
_SAMPLE = 48  # values that narrow the interval at first
_NEIGHBOURS = 4  # floats on either side of the interval's middle that are tried
_WIDEN = 2.0**-50  # interval ends are doubles themselves
_TO_INTEGER = 1.5 * 2.0**52  # adding and subtracting it rounds to the nearest integer


@intrinsic
def _bits_of(_context: Any, value: Any) -> Any:
    """Return the bits of a float64 as a uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.uint64(types.float64), generate


@intrinsic
def _float_of(_context: Any, bits: Any) -> Any:
    """Return the float64 of the bits of a uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.uint64), generate


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
def extent(values, largest):
    """Return the least magnitude that is not zero, the greatest, and whether −0.0 occurs.

    The greatest is -1 if a magnitude exceeds `largest` or is no number; 0 if all are zero.
    """
    least = np.inf
    greatest = 0.0
    sound = True
    negative_zero = False
    for i in range(values.size):
        value = np.float64(values[i])
        magnitude = abs(value)
        sound &= magnitude <= largest
        greatest = max(greatest, magnitude)
        if magnitude == 0.0:
            negative_zero |= _bits_of(value) != U(0)
        else:
            least = min(least, magnitude)
    return least, greatest if sound else -1.0, negative_zero


@jit
def quantize(values, step, mantissa, lowest, limit, codes):
    """Set codes[i] to the q with q × step = values[i]; return whether all have one within ±limit."""
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
def _narrow(values, stride, low, high, limit, mantissa, lowest):
    """Return the interval of steps that explains every stride-th value; low > high if none does."""
    for i in range(0, values.size, stride):
        magnitude = abs(np.float64(values[i]))
        if magnitude == 0.0:
            continue
        half = 0.5 * _quantum(magnitude, mantissa, lowest)
        fewest = np.ceil((magnitude - half) / high * (1.0 - _WIDEN))
        most = np.floor((magnitude + half) / low * (1.0 + _WIDEN))
        if fewest > most or fewest > limit:
            return 1.0, 0.0
        if fewest == most and most > 0.0:
            low = max(low, (magnitude - half) / most * (1.0 - _WIDEN))
            high = min(high, (magnitude + half) / most * (1.0 + _WIDEN))
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
    half = 0.5 * _quantum(magnitude, mantissa, lowest)
    low = max((magnitude - half) / q * (1.0 - _WIDEN), 2.0**-1022)
    high = (magnitude + half) / q * (1.0 + _WIDEN)
    stride = max(values.size // _SAMPLE, 1)
    for whole in range(2):  # a few values first, all of them if that does not do
        low, high = _narrow(values, 1 if whole else stride, low, high, limit, mantissa, lowest)
        if low > high:
            return 0.0
        for margin in (2.0**-10, 0.25):
            step = _roundest(low, high, margin)
            if quantize(values, step, mantissa, lowest, limit, codes):
                return step
    middle = _bits_of(low) + (_bits_of(high) - _bits_of(low)) // U(2)
    for k in range(2 * _NEIGHBOURS + 1):
        step = _float_of(middle + U(k) - U(_NEIGHBOURS))
        if quantize(values, step, mantissa, lowest, limit, codes):
            return step
    return 0.0


@jit
def find_steps(values, largest, limit, mantissa, lowest, steps, codes):
    """Set steps (R,) and codes (R, C) of the runs `values` (R, C), C > 0.

    Returns -1 if a run is no grid of codes within ±limit, else whether −0.0 occurs (0 or 1). What a
    run before had, its step or its greatest code, is tried first; then each fraction of the run's
    least magnitude that keeps the greatest within the limit, from the coarsest on. A run of zeros
    gets the step of its neighbour.
    """
    step = 0.0
    code = 0.0
    signed = 0
    waiting = 0
    for r in range(values.shape[0]):
        run, out = values[r], codes[r]
        least, greatest, negative_zero = extent(run, largest)
        if greatest < 0.0:
            return -1
        signed |= np.int64(negative_zero)
        if greatest == 0.0:
            out[:] = 0
            steps[r] = step
            continue
        found = 0.0
        if step > 0.0 and quantize(run, step, mantissa, lowest, limit, out):
            found = step
        if found == 0.0 and code > 0.0:
            found = _settle(run, greatest, code, limit, mantissa, lowest, out)
        q = 1.0
        # A quantum of slack: both magnitudes are rounded.
        top = max(greatest - _quantum(greatest, mantissa, lowest), 0.5 * greatest)
        bottom = least + _quantum(least, mantissa, lowest)
        while found == 0.0 and q <= limit and q * top <= limit * bottom:
            found = _settle(run, least, q, limit, mantissa, lowest, out)
            q += 1.0
        if found == 0.0:
            return -1
        step = found
        code = np.rint(greatest / step)
        steps[r] = step
        if waiting < r and steps[waiting] == 0.0:
            steps[waiting:r] = step
        waiting = r + 1
    return signed


@jit
def lower(values, codes):
    """Make room for −0.0 at code −1: every negative code (n,) moves down by one."""
    for i in range(codes.size):
        value = np.float64(values[i])
        signed_zero = (value == 0.0) & (_bits_of(value) != U(0))
        codes[i] -= np.int32((codes[i] < 0) | signed_zero)


@jit
def restore(codes, steps, mantissa, lowest, out):
    """Set out (R, C) to the products of codes (R, C) and steps (R,); a negative step, see `lower`."""
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
