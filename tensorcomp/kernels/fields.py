"""Floats apart and together: exponent with the top mantissa bits, sign with the others."""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bits import U
from tensorcomp.kernels.jit import jit


@jit
def split(words, low, high_mask, high, rest):
    """Cut each word, sign on top, at bit `low`.

    words (n,) unsigned; high[i] = words[i] >> low & high_mask; rest[i] = the `low` bits below, with
    the word's top bit above them.
    """
    top = U(words.itemsize * 8 - 1)
    cut = U(low)
    mask = U(high_mask)
    low_mask = (U(1) << cut) - U(1)
    for i in range(words.size):
        word = U(words[i])
        high[i] = (word >> cut) & mask
        rest[i] = (word & low_mask) | ((word >> top) << cut)


@jit
def merge(high, rest, low, out):
    """Undo `split` into `out` (n,) unsigned; bits beyond the fields' widths are dropped."""
    top = U(out.itemsize * 8 - 1)
    cut = U(low)
    high_mask = (U(1) << (top - cut)) - U(1)
    low_mask = (U(1) << cut) - U(1)
    for i in range(out.size):
        below = U(rest[i])
        sign = (below >> cut) & U(1)
        out[i] = (sign << top) | ((U(high[i]) & high_mask) << cut) | (below & low_mask)
