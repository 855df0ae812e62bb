"""Scores as integer keys in their order: counting, finding and marking the lowest.

A score's key is its magnitude's bits above (or, if it is negative, below) the key of zero, so that
−0.0 and 0.0 are equal and keys are in the order of the scores. Words are those of float32 (32 bits)
or float64 (64 bits).
"""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bits import U
from tensorcomp.kernels.jit import jit
from tensorcomp.kernels.selection import draw_number, mixed_seed

DIGIT = 16  # bits of a key that a pass decides


@jit
def _key(word, top):
    magnitude = word & (top - U(1))
    return top + magnitude if word < top else top - magnitude


@jit
def count_digits(words, bits, infinite, found, shift, counts):
    """Count the digits at `shift` of the keys whose higher digits are `found`.

    counts (65,536) int64 is added to. Returns whether there is a NaN: a magnitude above `infinite`.
    """
    top = U(1) << (U(bits) - U(1))
    below = U(shift) + U(DIGIT - 1)
    digit = U((1 << DIGIT) - 1)
    invalid = False
    for i in range(U(words.size)):
        word = U(words[i])
        key = _key(word, top)
        invalid |= (word & (top - U(1))) > U(infinite)
        # Shifted twice, since no shift by 64 bits is defined.
        if (key >> below) >> U(1) == U(found):
            counts[(key >> U(shift)) & digit] += 1
    return invalid


@jit
def count_below(words, bits, limit):
    """Return how many keys are below `limit`, and how many equal it."""
    top = U(1) << (U(bits) - U(1))
    below = equal = 0
    for i in range(U(words.size)):
        key = _key(U(words[i]), top)
        below += key < U(limit)
        equal += key == U(limit)
    return below, equal


@jit
def find_equal(words, bits, limit, number):
    """Return the index of the key that equals `limit` for the given number of times (from 1)."""
    top = U(1) << (U(bits) - U(1))
    for i in range(words.size):
        number -= _key(U(words[i]), top) == U(limit)
        if number == 0:
            return i
    return words.size


@jit
def mark_above(words, bits, limit, first, mask):
    """Set `mask` (n,) uint8 to 1 where the key is above `limit`, or equals it from `first` on."""
    top = U(1) << (U(bits) - U(1))
    for i in range(words.size):
        key = _key(U(words[i]), top)
        mask[i] = (key > U(limit)) | ((key == U(limit)) & (i >= first))


@jit
def mark_rows(words, bits, drop, mask):
    """Set mask (R, C) uint8 to 0 at the drop[r] lowest keys of each row, of equal ones the first.

    `words` is (R, C), `drop` (R,) from 0 to C.
    """
    top = U(1) << (U(bits) - U(1))
    columns = words.shape[1]
    keys = np.empty(columns, np.uint64)
    for r in range(words.shape[0]):
        k = drop[r]
        if k == 0:
            mask[r] = 1
            continue
        for i in range(columns):
            keys[i] = _key(U(words[r, i]), top)
        limit = np.partition(keys, k - 1)[k - 1]
        ties = k
        for i in range(columns):
            ties -= keys[i] < limit
        for i in range(columns):
            equal = keys[i] == limit
            mask[r, i] = (keys[i] > limit) | (equal & (ties <= 0))
            ties -= equal


@jit
def mark_groups(words, bits, keep, mask):
    """Set mask (G, m) uint8 to 1 at the `keep` highest keys of each group, of equal ones the last.

    `words` is (G, m). Each key is compared with all others: for groups of some ten.
    """
    top = U(1) << (U(bits) - U(1))
    size = words.shape[1]
    keys = np.empty(size, np.uint64)
    for g in range(words.shape[0]):
        for i in range(size):
            keys[i] = _key(U(words[g, i]), top)
        for i in range(size):
            above = 0
            for j in range(i):
                above += keys[j] > keys[i]
            for j in range(i + 1, size):
                above += keys[j] >= keys[i]
            mask[g, i] = above < keep


@jit
def draw_numbers(seed, start, numbers):
    """Fill `numbers` (n,) float64 with what is drawn from [0, 1) for indices from `start` on."""
    state = mixed_seed(seed)
    for i in range(U(numbers.size)):
        numbers[i] = np.float64(draw_number(state, start + i) >> U(11)) * 2.0**-53
