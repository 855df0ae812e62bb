"""A quick look at a tensor's words, to tell what kind of data they are."""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bits import U
from tensorcomp.kernels.jit import jit

_RUNS, _RUN = 16, 64  # looked at, spread over the tensor
_MORE_RUNS, _SHORT_RUN = 64, 16  # of which hardly all miss the rows that are zero
_SLOTS = 4096  # of the hash table: a quarter full at most
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
