"""Rows, or columns, of like scale put together, so that each group has a code of its own."""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.contexts import FRACTION, cut, edges
from tensorcomp.kernels.jit import jit
from tensorcomp.kernels.transpose import SIDE, eight_places, eight_rows, turn_tile

_BLOCK = 64  # columns that are turned together: a line of cache of each row


@jit
def find_groups(sums, columns, groups, group_of):
    """Set `group_of` (R,) uint8: which of so many equal steps of the mean a row falls in.

    sums (R,) int64 of `columns` numbers each. The outermost steps take what lies beyond the 2nd
    and the 98th percentile.
    """
    if groups == 1:
        group_of[:] = 0
        return
    means = np.empty(sums.size, np.int64)
    for r in range(sums.size):
        means[r] = (sums[r] << FRACTION) // columns
    low, high = edges(means)
    cut(means, low, high, groups, (high - low) // groups + 1, group_of)


@jit
def find_places(group_of, groups, places):
    """Set each row's place, (R,) int64, where groups follow each other; return their rows (G,)."""
    rows = np.zeros(groups, np.int64)
    for r in range(group_of.size):
        rows[group_of[r]] += 1
    following = np.zeros(groups, np.int64)
    for g in range(1, groups):
        following[g] = following[g - 1] + rows[g - 1]
    for r in range(group_of.size):
        places[r] = following[group_of[r]]
        following[group_of[r]] += 1
    return rows


@jit
def gather_columns(symbols, groups, group_of, places):
    """Return the columns of `symbols` (R, C) uint8 as rows, group by group, and each group's size.

    groups is how many there may be; group_of (C,) uint8 and places (C,) int64 are set to the group
    and the place of each column.
    """
    rows, columns = symbols.shape
    sums = np.zeros(columns, np.int64)
    for r in range(rows):
        row = symbols[r]
        for c in range(columns):
            sums[c] += row[c]
    find_groups(sums, rows, groups, group_of)
    sizes = find_places(group_of, groups, places)
    gathered = np.empty((columns, rows), np.uint8)
    source, target = symbols.reshape(symbols.size), gathered.reshape(gathered.size)
    whole_rows, whole_columns = rows - rows % SIDE, columns - columns % SIDE
    for first in range(0, whole_columns, _BLOCK):
        stop = min(first + _BLOCK, whole_columns)
        for r in range(0, whole_rows, SIDE):
            for c in range(first, stop, SIDE):
                line = eight_rows(r * columns + c, columns)
                turn_tile(source, line, target, eight_places(places, c, rows, r))
    for r in range(rows):
        for c in range(whole_columns if r < whole_rows else 0, columns):
            gathered[places[c], r] = symbols[r, c]
    return gathered, sizes


@jit
def scatter_columns(gathered, places):
    """Undo `gather_columns`: return (R, C) of (C, R)."""
    columns, rows = gathered.shape
    symbols = np.empty((rows, columns), np.uint8)
    source, target = gathered.reshape(gathered.size), symbols.reshape(symbols.size)
    whole_rows, whole_columns = rows - rows % SIDE, columns - columns % SIDE
    for first in range(0, whole_columns, _BLOCK):
        stop = min(first + _BLOCK, whole_columns)
        for r in range(0, whole_rows, SIDE):
            for c in range(first, stop, SIDE):
                line = eight_rows(r * columns + c, columns)
                turn_tile(source, eight_places(places, c, rows, r), target, line)
    for r in range(rows):
        for c in range(whole_columns if r < whole_rows else 0, columns):
            symbols[r, c] = gathered[places[c], r]
    return symbols
