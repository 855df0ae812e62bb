"""Floats as a byte that is worth coding and the bits that are not.

The byte of a float comes from its exponent and top mantissa bits v: 0 for v = 0, else v - base. So
zeros, far below all other values, need no room of their own.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bits import (
    U,
    both,
    either,
    higher,
    lower,
    minus,
    plus,
    resize,
    shift_left,
    shift_right,
    times,
)
from tensorcomp.kernels.jit import jit, quick

_MOST = 255  # of a byte


@jit
def look_at_rows(words, sums):
    """Return the least word above 0 (0 if there is none) and the greatest, without their signs.

    words (R, C) unsigned, sign on top; sums (R,) int64 is set to the sum of each row's words
    without their signs: these are the logarithms of the numbers, but for a factor, and nearly.
    """
    mask = (U(1) << U(words.itemsize * 8 - 1)) - U(1)
    greatest = minus(words[0, 0], words[0, 0])
    least = minus(greatest, U(1))
    for r in range(words.shape[0]):
        row = words[r]
        for c in range(row.size):
            magnitude = both(row[c], mask)
            least = lower(least, minus(magnitude, U(1)))  # zero is moved to the top
            greatest = higher(greatest, magnitude)
        total = np.uint64(0)
        for c in range(row.size):
            total += U(both(row[c], mask))
        sums[r] = total
    return (U(least) + U(1)) & mask, U(greatest)


@quick
def choose_cut(least, greatest, low, mantissa_bits):
    """Return (mantissa bits, base): as many of `mantissa_bits` as leave every symbol a byte.

    least and greatest as `look_at_rows` gives them; `low` bits are below the symbol if it has all
    mantissa bits. With 8 exponent bits and no mantissa bits there always is a base.
    """
    while True:
        base = max(np.int64(least >> U(low)), 1) - 1
        if np.int64(greatest >> U(low)) - base <= _MOST or mantissa_bits == 0:
            return mantissa_bits, base
        mantissa_bits -= 1
        low += 1


@jit
def split(words, places, low, base, symbols, rest):
    """Cut each word, sign on top, at bit `low`.

    words (R, C) unsigned; symbols (R, C) uint8, row r of them in row places[r]; rest (R, C) gets
    the `low` bits below, with the sign above them.
    """
    top = U(words.itemsize * 8 - 1)
    cut = U(low)
    high_mask = (U(1) << (top - cut)) - U(1)
    low_mask = (U(1) << cut) - U(1)
    sign_bit = U(1) << cut
    down = top - cut
    bottom = U(base)
    for r in range(words.shape[0]):
        row = words[r]
        row_symbols = symbols[places[r]]
        row_rest = rest[r]
        for c in range(row.size):
            word = row[c]
            high = both(shift_right(word, cut), high_mask)
            above_zero = both(shift_right(plus(high, high_mask), down), U(1))
            row_symbols[c] = resize(minus(high, times(above_zero, bottom)), row_symbols[c])
            below = both(word, low_mask)
            row_rest[c] = resize(
                either(below, both(shift_right(word, down), sign_bit)), row_rest[c]
            )


@jit
def merge(symbols, rest, low, base, out):
    """Undo `split` for words (n,)."""
    top = U(out.itemsize * 8 - 1)
    cut = U(low)
    up = top - cut
    largest = (U(1) << up) - U(1)
    high_mask = largest << cut
    low_mask = (U(1) << cut) - U(1)
    sign = U(1) << top
    bottom = U(base)
    for i in range(out.size):
        symbol = resize(symbols[i], out[i])
        above_zero = both(shift_right(plus(symbol, largest), up), U(1))
        high = both(shift_left(plus(symbol, times(above_zero, bottom)), cut), high_mask)
        below = resize(rest[i], out[i])
        signed = both(shift_left(below, up), sign)
        out[i] = either(either(signed, high), both(below, low_mask))
