"""Gathering what is not zero, and scattering it again, without a branch that chance decides."""

from __future__ import annotations

from tensorcomp.kernels.bits import U
from tensorcomp.kernels.jit import jit


@jit
def gather(words, values):
    """Copy the words (n,) that are not zero to `values`, which has a place more than there are."""
    last = U(values.size - 1)
    k = U(0)
    for i in range(U(words.size)):
        word = words[i]
        values[min(k, last)] = word
        k += U(word != 0)


@jit
def scatter(mask, values, out):
    """Set out[i] to the next of `values` (at least one) where mask[i] is 1, to 0 where it is 0.

    mask uint8; values beyond the last are the last again.
    """
    last = U(values.size - 1)
    k = U(0)
    for i in range(U(out.size)):
        keep = U(mask[i] & 1)
        out[i] = U(values[min(k, last)]) & (U(0) - keep)
        k += keep


@jit
def is_grouped(words, kept, keep, group):
    """Return whether no group of neighbours in a row of words (R, C) has more than `keep` set.

    A word is set if any of its bits is that `kept` has.
    """
    columns = words.shape[1]
    for i in range(words.shape[0]):
        for start in range(0, columns, group):
            count = 0
            for j in range(start, min(start + group, columns)):
                count += (U(words[i, j]) & kept) != U(0)
            if count > keep:
                return False
    return True


@jit
def strip_signs(words, top, signs, out):
    """Copy words (n,) to `out`, those that are zero but for bit `top`, the highest, as 0.

    The bits that they lose go to `signs` (uint8), which has a place more than there are.
    """
    last = U(signs.size - 1)
    below = (U(1) << U(top)) - U(1)
    k = U(0)
    for i in range(U(words.size)):
        word = U(words[i])
        zero = U((word & below) == U(0))
        signs[min(k, last)] = word >> U(top)
        out[i] = word & (zero - U(1))
        k += zero


@jit
def put_signs(words, top, signs, out):
    """Copy words (n,) to `out`; the next of `signs` (uint8, 0 or 1) is bit `top` of each zero.

    At least one sign; signs beyond the last are the last again.
    """
    last = U(signs.size - 1)
    below = (U(1) << U(top)) - U(1)
    k = U(0)
    for i in range(U(words.size)):
        word = U(words[i])
        zero = U((word & below) == U(0))
        sign = U(signs[min(k, last)]) << U(top)
        out[i] = (word & (zero - U(1))) | (sign & (U(0) - zero))
        k += zero
