"""Codebooks of vectors: the nearest one."""

from __future__ import annotations

from tensorcomp.kernels.jit import jit


@jit
def _measure(vector, columns, away):
    """Set away (K,) to the squared distances of a vector (W,) from the columns (W, K)."""
    away[:] = 0.0
    for w in range(vector.size):
        value, column = vector[w], columns[w]
        for k in range(away.size):
            gap = value - column[k]
            away[k] += gap * gap


@jit
def _least(bits):
    least = bits[0]
    for k in range(bits.size):
        least = min(least, bits[k])
    return least


@jit
def _first(bits, wanted):
    """Return the first place of a number that is there, without a branch."""
    behind = 0
    for k in range(bits.size):
        behind = max(behind, bits.size - k if bits[k] == wanted else 0)
    return bits.size - behind


@jit
def nearest_vectors(vectors, columns, away, bits, codes):
    """Set codes (N,) to the place of the nearest of K vectors to each of `vectors` (N, W).

    columns (W, K): the K vectors, one a column; away (K,) of the same type; bits (K,) unsigned, the
    same memory: floats from 0 on are ordered as their bits are. Of several the first is taken.
    """
    for i in range(vectors.shape[0]):
        _measure(vectors[i], columns, away)
        codes[i] = _first(bits, _least(bits))
