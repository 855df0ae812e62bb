"""Floats apart and together: exponent with the top mantissa bits, sign with the others."""

from __future__ import annotations

from tensorcomp.kernels.bits import U, both, either, resize, shift_left, shift_right
from tensorcomp.kernels.jit import jit


@jit
def split(words, low, high_mask, high, rest):
    """Cut each word, sign on top, at bit `low`.

    words (n,) unsigned; high[i] = words[i] >> low & high_mask; rest[i] = the `low` bits below, with
    the word's top bit above them.
    """
    top = U(words.itemsize * 8 - 1)
    cut = U(low) & top
    mask = U(high_mask)
    low_mask = (U(1) << cut) - U(1)
    sign_bit = U(1) << cut
    down = top - cut
    for i in range(words.size):
        word = words[i]
        high[i] = both(shift_right(word, cut), mask)
        rest[i] = either(both(word, low_mask), both(shift_right(word, down), sign_bit))


@jit
def merge(high, rest, low, out):
    """Undo `split` into `out` (n,) unsigned; bits beyond the fields' widths are dropped."""
    top = U(out.itemsize * 8 - 1)
    cut = U(low) & top
    up = top - cut
    high_mask = ((U(1) << (top - cut)) - U(1)) << cut
    low_mask = (U(1) << cut) - U(1)
    sign = U(1) << top
    for i in range(out.size):
        like = out[i]
        below = resize(rest[i], like)
        above = both(shift_left(resize(high[i], like), cut), high_mask)
        out[i] = either(either(both(shift_left(below, up), sign), above), both(below, low_mask))
