"""A quick look at a tensor's words, to tell what kind of data they are."""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bits import U
from tensorcomp.kernels.jit import jit

_RUNS, _RUN = 16, 64  # looked at, spread over the tensor
_MORE_RUNS, _SHORT_RUN = 64, 16  # of which hardly all miss the rows that are zero
_SLOTS = 4096  # of the hash table: a quarter full at most
_ROWS, _COLUMNS = 32, 64  # looked at, of a matrix
_GOLDEN = 0x9E3779B97F4A7C15  # Fibonacci hashing (Knuth, TAOCP 6.4)


@jit
def all_equal(words):
    """Return whether all words (n,), at least one, are equal."""
    same = 1
    while same < words.size and words[same] == words[0]:
        same += 1
    return same == words.size


@jit
def survey(words):
    """Return the share of zeros, and the number of distinct words, in a thousand of (n,).

    n is 1,024 at least.
    """
    table = np.zeros(_SLOTS, np.uint64)
    zeros = 0
    distinct = 0
    step = (words.size - _RUN) // (_RUNS - 1)
    for run in range(_RUNS):
        for i in range(run * step, run * step + _RUN):
            word = U(words[i])
            if word == U(0):
                zeros += 1
                continue
            slot = (word * U(_GOLDEN)) >> U(52)
            while table[slot] != U(0) and table[slot] != word:
                slot = (slot + U(1)) & U(_SLOTS - 1)
            if table[slot] == U(0):
                table[slot] = word
                distinct += 1
    return zeros / (_RUNS * _RUN), distinct + (1 if zeros > 0 else 0)


@jit
def share_of(words, wanted):
    """Return the share of one word among those of (n,) that `survey` looks at."""
    found = 0
    step = (words.size - _RUN) // (_RUNS - 1)
    for run in range(_RUNS):
        for i in range(run * step, run * step + _RUN):
            found += U(words[i]) == wanted
    return found / (_RUNS * _RUN)


@jit
def scattered_zeros(words):
    """Return the share of zeros among a thousand of (n,) at more places than `survey` looks at."""
    zeros = 0
    step = (words.size - _SHORT_RUN) // (_MORE_RUNS - 1)
    for run in range(_MORE_RUNS):
        for i in range(run * step, run * step + _SHORT_RUN):
            zeros += words[i] == 0
    return zeros / (_MORE_RUNS * _SHORT_RUN)


@jit
def column_variance(words):
    """Return the variance of log2 between the columns of floats (R, C) over that within columns.

    Some rows and columns are looked at, and zeros are left out. What rows have in common is taken
    away first, and of the variance between columns what so few rows give by chance. The words' bits
    without the sign are taken for the logarithm, which they are but for a factor, and nearly.
    """
    rows = _spread(words.shape[0], _ROWS)
    columns = _spread(words.shape[1], _COLUMNS)
    mask = (U(1) << U(8 * words.itemsize - 1)) - U(1)
    logs = np.empty((rows.size, columns.size), np.float64)
    for i in range(rows.size):
        total = 0.0
        count = 0
        for j in range(columns.size):
            log = float(U(words[rows[i], columns[j]]) & mask)
            logs[i, j] = log
            total += log
            count += log > 0
        for j in range(columns.size):
            logs[i, j] = logs[i, j] - total / count if logs[i, j] > 0 else np.nan
    return _between_over_within(logs)


@jit
def _spread(size, wanted):
    """Return at most so many indices below `size`, an odd number apart.

    Columns of a convolution that are a power of two apart are the same place of different kernels.
    """
    step = max(size // wanted, 1)
    step -= 1 - step % 2
    return np.arange(0, size, step)[:wanted]


@jit
def _between_over_within(logs):
    """Return the variance of the columns' means over that within columns; NaN are left out."""
    within = 0.0
    freedom = 0
    chance = 0.0
    means = np.empty(logs.shape[1])
    used = 0
    for j in range(logs.shape[1]):
        total = squares = 0.0
        count = 0
        for i in range(logs.shape[0]):
            log = logs[i, j]
            if log == log:
                total += log
                squares += log * log
                count += 1
        if count > 1:
            means[used] = total / count
            within += squares - total * total / count
            freedom += count - 1
            chance += 1 / count
            used += 1
    if used < 2 or within <= 0:
        return 0.0
    within /= freedom
    return (means[:used].var() - within * chance / used) / within
