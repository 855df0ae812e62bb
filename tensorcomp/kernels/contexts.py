"""Contexts from row and column scale: levels, the context of each element, histograms.

Everything is integer arithmetic, so that equal inputs give equal contexts on every machine.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bits import U, either, resize
from tensorcomp.kernels.jit import jit

FRACTION = 6  # levels are cut from means in units of 1/64
_MOST_SORTED = 512


@jit
def find_model(array, signed, levels, width, contexts, row_levels, column_levels, context_of):
    """Find the levels as `find_levels` does, and the context of each sum of two of them."""
    find_levels(array, signed, levels, width, row_levels, column_levels)
    cut_sums(row_levels, column_levels, levels, contexts, context_of)


@jit
def find_levels(array, signed, levels, width, row_levels, column_levels):
    """Set the level of each row and column of `array` (R, C) and return the width of a level.

    signed says that a level is a step of log2 of the mean magnitude, not of the mean; levels, how
    many there are. With a `width` above 0, it and `column_levels` are given and only rows' levels
    are found. row_levels (R,) and column_levels (C,) uint8.
    """
    rows, columns = array.shape
    by_row = np.zeros(rows, np.int64)
    if width > 0:
        for r in range(rows):
            for c in range(columns):
                by_row[r] += abs(np.int64(array[r, c]))
    else:
        by_column = np.zeros(columns, np.int64)
        for r in range(rows):
            total = np.int64(0)
            for c in range(columns):
                magnitude = abs(np.int64(array[r, c]))
                total += magnitude
                by_column[c] += magnitude
            by_row[r] = total
        _to_statistics(by_column, rows, signed)
    _to_statistics(by_row, columns, signed)
    row_low, row_high = edges(by_row)
    if width == 0:
        low, high = edges(by_column)
        width = max(high - low, row_high - row_low) // (levels - 1) + 1
        cut(by_column, low, high, levels, width, column_levels)
    cut(by_row, row_low, row_high, levels, width, row_levels)
    return width


@jit
def _to_statistics(sums, count, signed):
    """Turn sums of `count` magnitudes into means, or log2 of means, in units of 1/64."""
    for i in range(sums.size):
        sums[i] = _log2((sums[i] << 8) // count + 1) if signed else (sums[i] << FRACTION) // count


@jit
def _log2(value):
    """Return log2 of a positive integer below 2**43 in units of 1/64."""
    whole = 0
    while value >> (whole + 1) > 0:
        whole += 1
    mantissa = (value << 20) >> whole  # in [2**20, 2**21)
    result = whole
    for _ in range(FRACTION):  # square, and see whether it passes 2
        mantissa = (mantissa * mantissa) >> 20
        bit = mantissa >> 21
        mantissa >>= bit
        result = (result << 1) | bit
    return result


@jit
def edges(values):
    """Return the values that about a fiftieth of all lies below and above."""
    step = (values.size + _MOST_SORTED - 1) // _MOST_SORTED
    some = np.sort(values[::step])
    tail = some.size // 50
    return some[tail], some[some.size - 1 - tail]


@jit
def cut(values, low, high, levels, width, out):
    """Set `out` to the levels of `values`: from `low` to `high`, centred if they leave room."""
    first = low - (levels * width - (high - low + 1)) // 2
    for i in range(values.size):
        out[i] = min(max((values[i] - first) // width, 0), levels - 1)


@jit
def cut_sums(row_levels, column_levels, levels, contexts, context_of):
    """Set `context_of` (2 × levels - 1,) uint8: equal steps between the 2nd and 98th percentile."""
    low, span = find_sums(row_levels, column_levels, levels)
    fill_steps(low, span, contexts, context_of)


@jit
def find_sums(row_levels, column_levels, levels):
    """Return the 2nd percentile of the sums of two levels, and the span from there to the 98th."""
    by_row = np.zeros(levels, np.int64)
    by_column = np.zeros(levels, np.int64)
    for r in range(row_levels.size):
        by_row[row_levels[r]] += 1
    for c in range(column_levels.size):
        by_column[column_levels[c]] += 1
    counts = np.zeros(2 * levels - 1, np.int64)
    for i in range(levels):
        for j in range(levels):
            counts[i + j] += by_row[i] * by_column[j]
    tail = row_levels.size * column_levels.size // 50
    low = 0
    below = counts[0]
    while below <= tail:
        low += 1
        below += counts[low]
    high = counts.size - 1
    above = counts[high]
    while above <= tail:
        high -= 1
        above += counts[high]
    return low, max(high - low + 1, 1)


@jit
def fill_steps(low, span, contexts, context_of):
    """Set `context_of` to `contexts` equal steps over the `span` sums from `low` on."""
    for i in range(context_of.size):
        context_of[i] = min(max((i - low) * contexts // span, 0), contexts - 1)


@jit
def level_patterns(row_levels, column_levels, levels, value_of):
    """Return the row of patterns of each level, and patterns (S, C): value_of[level + column's].

    levels is how many there are. There are as many patterns as rows have levels, so that they take
    no more than the chunk.
    """
    slots = np.full(levels, -1, np.int64)
    used = 0
    for r in range(row_levels.size):
        if slots[row_levels[r]] < 0:
            slots[row_levels[r]] = used
            used += 1
    patterns = np.empty((used, column_levels.size), np.uint16)
    for level in range(levels):
        if slots[level] >= 0:
            for c in range(column_levels.size):
                patterns[slots[level], c] = value_of[level + np.int64(column_levels[c])]
    return slots, patterns


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
def fill_indices(row_levels, column_levels, value_of, symbols, out):
    """Set out[r, c] to the value as in `fill_contexts`, with symbols[r, c] in its low bits."""
    columns = column_levels.size
    pattern = np.empty((256, columns), np.uint16)
    seen = np.zeros(256, np.bool_)
    for r in range(row_levels.size):
        level = row_levels[r]
        row = pattern[level]
        if not seen[level]:
            seen[level] = True
            for c in range(columns):
                row[c] = value_of[np.int64(level) + np.int64(column_levels[c])]
        for c in range(columns):
            out[r, c] = either(row[c], resize(symbols[r, c], row[c]))


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
def sum_magnitudes(array):
    """Return the sum of the magnitudes of signed integers (n,)."""
    total = np.int64(0)
    for i in range(array.size):
        total += abs(np.int64(array[i]))
    return total
