"""Distinct words: which there are, and the number of each."""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bits import U
from tensorcomp.kernels.jit import jit

_GOLDEN = U(0x9E3779B97F4A7C15)
_FIRST_BITS = 10  # the hash table starts small, so that few patterns stay in the first cache
_SPARE_PROBES = 1 << 22


@jit
def mark(words, present):
    """Set present[word] for each of `words`; `present` has a place for every word there can be."""
    for i in range(words.size):
        present[U(words[i])] = True


@jit
def look_up(codes, table, out):
    """Set out[i] = table[codes[i]]; codes beyond the table (of at least one) mean its last."""
    last = U(table.size - 1)
    for i in range(U(codes.size)):
        out[i] = table[min(U(codes[i]), last)]


@jit
def _slot(word, bits):
    mixed = (word ^ (word >> U(32))) * _GOLDEN
    return (mixed ^ (mixed >> U(29))) * _GOLDEN >> (U(64) - bits)


@jit
def _insert(slots, bits, found, number):
    """Enter found[number], which is not there, into the open-addressed table `slots`."""
    mask = U(slots.size - 1)
    at = _slot(U(found[number]), bits)
    while slots[at] >= 0:
        at = (at + U(1)) & mask
    slots[at] = number


@jit
def number(words, found, codes):
    """Give each distinct word of `words` (n,) a number, in the order in which they occur.

    Sets codes[i] to the number of words[i] and found[number] to the word; returns how many there
    are, or -1 as soon as they are more than `found` has room for (or were made to collide).
    """
    bits = U(_FIRST_BITS)
    slots = np.full(1 << _FIRST_BITS, -1, np.int32)
    mask = U(slots.size - 1)
    count = 0
    spare = np.int64(_SPARE_PROBES) + words.size
    for i in range(U(words.size)):
        word = words[i]
        at = _slot(U(word), bits)
        entry = slots[at]
        while entry >= 0 and found[entry] != word:
            at = (at + U(1)) & mask
            entry = slots[at]
            spare -= 1
        if entry >= 0:
            codes[i] = entry
            continue
        if count == found.size or spare < 0:
            return -1
        found[count] = word
        codes[i] = count
        slots[at] = count
        count += 1
        if 4 * count > slots.size:
            bits += U(2)
            slots = np.full(slots.size * 4, -1, np.int32)
            mask = U(slots.size - 1)
            for k in range(count):
                _insert(slots, bits, found, k)
    return count
