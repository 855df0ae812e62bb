"""Contexts from row and column scale: sums, the context of each element, histograms."""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bits import U
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
def fill_contexts(row_levels, column_levels, context_of, out):
    """Set out[r, c] = context_of[row_levels[r] + column_levels[c]], all uint8."""
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
                out[r, c] = context_of[np.int64(level) + np.int64(column_levels[c])]


@jit
def histogram(symbols, contexts, shift, counts):
    """Count context << shift | symbol into `counts` (4, K << shift) uint32, zero at first.

    Four tables in turn, because an increment of a counter that was just written has to wait.
    """
    s = U(shift)
    n = U(symbols.size)
    stop = n - n % U(4)
    for i in range(U(0), stop, U(4)):
        counts[0, (U(contexts[i]) << s) | U(symbols[i])] += np.uint32(1)
        counts[1, (U(contexts[i + U(1)]) << s) | U(symbols[i + U(1)])] += np.uint32(1)
        counts[2, (U(contexts[i + U(2)]) << s) | U(symbols[i + U(2)])] += np.uint32(1)
        counts[3, (U(contexts[i + U(3)]) << s) | U(symbols[i + U(3)])] += np.uint32(1)
    for i in range(stop, n):
        counts[0, (U(contexts[i]) << s) | U(symbols[i])] += np.uint32(1)
