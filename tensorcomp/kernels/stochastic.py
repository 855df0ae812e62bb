"""Loops with random numbers that depend on nothing but a key and an element's index."""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bits import U
from tensorcomp.kernels.jit import jit
from tensorcomp.kernels.selection import draw_number, mixed_seed

_PART = 2.0**-53
_BLOCK = 256


@jit
def round_up_or_down(values, length, scales, top, key, start, codes):
    """Set codes (R, C) int8 to values (R, C) / scale of the group, rounded at random to ±top.

    An element is rounded up with a probability that equals its fraction; it draws the number of
    its index, in row-major order, plus `start`. Groups are runs of `length` within a row, numbered
    row by row; those with a scale of 0 get codes of 0.
    """
    state = mixed_seed(key)
    draws = np.empty(_BLOCK, np.float64)
    high, low = np.float64(top), -np.float64(top)
    g = U(0)
    position = start
    for r in range(values.shape[0]):
        row, target = values[r], codes[r]
        for begin in range(0, row.size, length):
            inverse = np.float64(scales[g])
            inverse = 1.0 / inverse if inverse > 0.0 else 0.0
            end = min(begin + length, row.size)
            for block in range(begin, end, _BLOCK):
                stop = min(block + _BLOCK, end)
                run, put = row[block:stop], target[block:stop]
                for i in range(U(run.size)):
                    draws[i] = np.float64(draw_number(state, position + i) >> U(11)) * _PART
                for i in range(run.size):
                    value = np.floor(np.float64(run[i]) * inverse + draws[i])
                    put[i] = np.int8(min(max(value, low), high))
                position += U(run.size)
            g += U(1)


@jit
def find_draws(key, first, n, limit, positions, numbers):
    """Write the i below n of which `first` + i draws at most `limit`, and the numbers drawn.

    positions (m,) int64, numbers (m,) uint64. Returns how many there are, or -1 if there is no
    room left for another block of 256.
    """
    state = mixed_seed(key)
    draws = np.empty(_BLOCK, np.uint64)
    room = positions.size - _BLOCK
    k = 0
    for start in range(0, n, _BLOCK):
        size = min(_BLOCK, n - start)
        if k > room:
            return -1
        for i in range(U(size)):
            draws[i] = draw_number(state, first + U(start) + i)
        for i in range(size):
            positions[k] = start + i
            numbers[k] = draws[i]
            k += np.int64(draws[i] <= limit)
    return k


@jit
def gather_scaled(values, positions, factor, out):
    """Set out (k,) to values[positions] × factor."""
    for i in range(positions.size):
        out[i] = values[positions[i]] * factor


@jit
def sample_magnitudes(values, key, out):
    """Set out (m,) to the magnitudes of m values (n,), one drawn from each of m equal stretches."""
    state = mixed_seed(key)
    n, m = values.size, out.size
    for i in range(m):
        begin, end = i * n // m, (i + 1) * n // m
        drawn = draw_number(state, U(i)) % U(max(end - begin, 1))
        out[i] = abs(values[begin + np.int64(drawn)])


@jit
def fill_uniform(key, out):
    """Set out (n,) float64 to numbers drawn evenly from -1 to 1."""
    state = mixed_seed(key)
    for i in range(U(out.size)):
        out[i] = np.float64(draw_number(state, i) >> U(11)) * (2.0 * _PART) - 1.0


@jit
def orthonormalize(vectors, key, least):
    """Make vectors (r, m) float64, r <= m, orthonormal, one after the other (Gram–Schmidt, twice).

    A vector of which those before it leave a part of less than `least`, zeros for example, is
    replaced by one drawn at random. All sums have a fixed order.
    """
    rank = vectors.shape[0]
    for j in range(rank):
        vector = vectors[j]
        for attempt in range(8):
            before = _norm(vector)
            if before > 0.0:
                for i in range(vector.size):
                    vector[i] /= before
            for _ in range(2):
                for k in range(j):
                    other = vectors[k]
                    product = 0.0
                    for i in range(vector.size):
                        product += vector[i] * other[i]
                    for i in range(vector.size):
                        vector[i] -= product * other[i]
            after = _norm(vector)
            if after > least:
                for i in range(vector.size):
                    vector[i] /= after
                break
            fill_uniform(key + U(8 * j + attempt), vector)
        else:
            vector[:] = 0.0


@jit
def _norm(vector):
    total = 0.0
    for i in range(vector.size):
        total += vector[i] * vector[i]
    return np.sqrt(total)
