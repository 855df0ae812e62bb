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
