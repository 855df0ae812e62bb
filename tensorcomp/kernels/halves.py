"""Rounding to floats of 16 bits by integer arithmetic, which takes vector instructions."""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bits import U
from tensorcomp.kernels.jit import jit

_INFINITE = np.uint32(0x7F800000)


@jit
def to_half(words, out):
    """Round float32s (n,), given as uint32, to the nearest float16s (n,), as uint16, ties to even.

    NaN becomes a quiet NaN.
    """
    one = np.uint32(1)
    for i in range(U(words.size)):
        word = words[i]
        size = word & np.uint32(0x7FFFFFFF)
        exponent = size >> np.uint32(23)
        # From 2**-14 on: another bias, and the upper bits rounded.
        odd = size >> np.uint32(13) & one
        normal = (size - np.uint32(0x38000000) + np.uint32(0xFFF) + odd) >> np.uint32(13)
        # Below: the mantissa in units of 2**-24.
        shift = np.uint32(126) - min(exponent, np.uint32(112))
        shift = min(shift, np.uint32(31))
        mantissa = (size & np.uint32(0x7FFFFF)) | np.uint32(0x800000)
        small = (mantissa + (one << (shift - one)) - one + (mantissa >> shift & one)) >> shift
        half = normal if exponent > np.uint32(112) else small
        half = min(half, np.uint32(0x7C00))
        half = np.uint32(0x7E00) if size > _INFINITE else half
        out[i] = half | (word >> np.uint32(16) & np.uint32(0x8000))
