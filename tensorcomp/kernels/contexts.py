"""Contexts from row and column scale: sums, the context of each element, histograms."""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bits import U, either, resize
from tensorcomp.kernels.jit import jit


@jit
def magnitude_sums(array, rows, columns):
    """Add |array| (R, C) into `rows` (R,) and `columns` (C,), both int64 and zero at first."""
    for r in range(array.shape[0]):
        total = np.int64(0)
        for c in range(array.shape[1]):
            magnitude = abs(np.int64(array[r, c]))
            total += magnitude
            columns[c] += magnitude
        rows[r] = total


@jit
def row_magnitude_sums(array, rows):
    """Set `rows` (R,) int64 to the sums of |array| (R, C) along its rows."""
    for r in range(array.shape[0]):
        total = np.int64(0)
        for c in range(array.shape[1]):
            total += abs(np.int64(array[r, c]))
        rows[r] = total


@jit
def fill_contexts(row_levels, column_levels, value_of, out):
    """Set out[r, c] = value_of[row_levels[r] + column_levels[c]], levels uint8, values uint16."""
    columns = column_levels.size
    seen = np.full(256, -1, np.int64)  # the first row of each level; later ones copy it
    for r in range(row_levels.size):
        level = row_levels[r]
        first = seen[level]
        if first >= 0:
            for c in range(columns):
                out[r, c] = out[first, c]
        else:
            seen[level] = r
            for c in range(columns):
                out[r, c] = value_of[np.int64(level) + np.int64(column_levels[c])]


@jit
def histogram(symbols, counts):
    """Count `symbols` (n,) into `counts` (2, S) uint32, zero at first.

    Two tables in turn, because an increment of a counter that was just written has to wait; more
    would not stay in the first-level cache.
    """
    n = U(symbols.size)
    stop = n - n % U(2)
    for i in range(U(0), stop, U(2)):
        counts[0, symbols[i]] += np.uint32(1)
        counts[1, symbols[i + U(1)]] += np.uint32(1)
    for i in range(stop, n):
        counts[0, symbols[i]] += np.uint32(1)


@jit
def add_symbols(symbols, indices):
    """Set the low bits of `indices` (n,) uint16, zero so far, to `symbols` (n,)."""
    for i in range(indices.size):
        indices[i] = either(indices[i], resize(symbols[i], indices[i]))
