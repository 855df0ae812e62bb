"""Loops over gradients: adding to residuals, finding the largest, adding sparse ones up."""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bits import U
from tensorcomp.kernels.jit import jit

_BLOCK = 32


@jit
def accumulate(gradient, scale, residual, decay, out):
    """Set out (n,) to gradient × scale + residual × decay; `out` may be `residual`."""
    for i in range(gradient.size):
        out[i] = gradient[i] * scale + residual[i] * decay


@jit
def add_scaled(values, factor, out):
    """Add values (n,) × factor to `out`."""
    for i in range(values.size):
        out[i] += values[i] * factor


@jit
def scatter_add(positions, values, factor, out):
    """Add values (k,) × factor to `out` (n,) at positions (k,) int64 below n."""
    for i in range(positions.size):
        out[positions[i]] += values[i] * factor


@jit
def find_above(words, bits, limit, positions):
    """Write the indices of words (n,) whose key is at least `limit` to `positions` (m,) int64.

    A key is a word's low `bits` (< 64). Returns how many there are, or -1 if there is no room left
    for another block's.
    """
    mask = words.dtype.type((U(1) << U(bits)) - U(1))
    least = words.dtype.type(limit)
    n = words.size
    room = positions.size - _BLOCK
    k = 0
    start = 0
    while start + _BLOCK <= n:
        most = words.dtype.type(0)
        for i in range(start, start + _BLOCK):  # a maximum takes vector instructions
            most = max(most, words[i] & mask)
        if most >= least:
            if k > room:
                return -1
            for i in range(start, start + _BLOCK):
                positions[k] = i
                k += np.int64((words[i] & mask) >= least)
        start += _BLOCK
    if k > room:
        return -1
    for i in range(start, n):
        positions[k] = i
        k += np.int64((words[i] & mask) >= least)
    return k


@jit
def is_finite(words, exponent):
    """Return whether no word (n,) has all bits of `exponent` set."""
    mask = words.dtype.type(exponent)
    most = words.dtype.type(0)
    for i in range(words.size):  # a maximum takes vector instructions, a comparison does not
        most = max(most, words[i] & mask)
    return most < mask
