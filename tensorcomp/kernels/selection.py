"""Selecting the largest: by integer keys, with a tie-break, in a few passes and little memory.

A key is a word without the bits that a mask clears: of a float without its sign, whose bits are
then in the order of the magnitudes.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bits import U
from tensorcomp.kernels.jit import jit

_DIGIT = 11  # bits of a key that a pass decides
_GOLDEN = U(0x9E3779B97F4A7C15)


@jit
def smallest_key(words, bits, k):
    """Return the k-th smallest (from 1) of the keys of `words` (n,), their low `bits` (< 64)."""
    kept = (U(1) << U(bits)) - U(1)
    counts = np.empty((2, 1 << _DIGIT), np.int64)
    found = U(0)
    shift = U(bits)
    while shift > U(0):
        above = shift
        shift -= min(U(_DIGIT), shift)
        digit = (U(1) << (above - shift)) - U(1)
        counts[:] = 0
        # Two tables: the same count seldom rises twice in a row, which the next would wait for.
        for i in range(U(words.size)):
            key = U(words[i]) & kept
            counts[i & U(1), (key >> shift) & digit] += (key >> above) == found
        chosen = U(0)
        while k > counts[0, chosen] + counts[1, chosen] and chosen < digit:
            k -= counts[0, chosen] + counts[1, chosen]
            chosen += U(1)
        found = (found << (above - shift)) | chosen
    return found


@jit
def count_keys(words, bits, limit):
    """Return how many keys of `words` (n,) are above `limit`, and how many equal it."""
    kept = (U(1) << U(bits)) - U(1)
    above = equal = 0
    for i in range(U(words.size)):
        key = U(words[i]) & kept
        above += key > limit
        equal += key == limit
    return above, equal


@jit
def mark_keys(words, bits, limit, first, last, mask):
    """Set `mask` (n,) uint8 to 1 where the key is above `limit`, else to 0.

    Of the keys that equal it, those from number `first` up to `last` are marked too.
    """
    kept = (U(1) << U(bits)) - U(1)
    ties = 0
    for i in range(U(words.size)):
        key = U(words[i]) & kept
        equal = key == limit
        mask[i] = (key > limit) | (equal & (ties >= first) & (ties < last))
        ties += equal


@jit
def take(mask, words, values):
    """Copy words[i] where mask[i] (uint8) is 1 to `values`, which has one place to spare."""
    last = U(values.size - 1)
    k = U(0)
    for i in range(U(words.size)):
        values[min(k, last)] = words[i]
        k += U(mask[i] & 1)


@jit
def add_squares(rows, first, height, width, sums):
    """Add the squares of `rows` (R, C) to the sums of their blocks (B, W), float64, row by row.

    The rows are those from `first` on of a matrix cut into blocks of height × width; blocks at its
    right and lower edges may be smaller.
    """
    columns = rows.shape[1]
    for i in range(rows.shape[0]):
        row = rows[i]
        block = sums[(first + i) // height]
        for b in range(block.size):
            total = block[b]
            for j in range(b * width, min((b + 1) * width, columns)):
                value = np.float64(row[j])
                total += value * value
            block[b] = total


@jit
def group_masks(words, bits, keep, group, masks):
    """Set masks (R, G), unsigned, to the bits of the `keep` largest keys of each group of a row.

    words (R, C), bits up to 64; the last group of a row may be shorter; of equal keys the first
    ones are kept.
    """
    kept = U(0xFFFFFFFFFFFFFFFF) >> U(64 - bits)
    keys = np.empty(group, np.uint64)
    columns = words.shape[1]
    for i in range(words.shape[0]):
        for g in range(masks.shape[1]):
            start = g * group
            size = min(group, columns - start)
            for j in range(size):
                keys[j] = U(words[i, start + j]) & kept
            pattern = U(0)
            for j in range(size):
                better = 0
                for m in range(j):
                    better += keys[m] >= keys[j]
                for m in range(j + 1, size):
                    better += keys[m] > keys[j]
                pattern |= U(better < keep) << U(j)
            masks[i, g] = pattern


@jit
def spread_masks(masks, keep, group, mask):
    """Set `mask` (R, C) uint8 from the bits of each group.

    Returns whether each group has as many bits as it keeps, and none beyond its end.
    """
    columns = mask.shape[1]
    sound = True
    for i in range(masks.shape[0]):
        for g in range(masks.shape[1]):
            start = g * group
            size = min(group, columns - start)
            pattern = U(masks[i, g])
            count = 0
            for j in range(size):
                bit = (pattern >> U(j)) & U(1)
                mask[i, start + j] = bit
                count += np.int64(bit)
            sound &= (count == min(keep, size)) & ((pattern >> U(size)) == 0)
    return sound


@jit
def mixed_seed(word):
    """Return a 64-bit word whose bits all depend on those of another (the mix of SplitMix64)."""
    word = (word ^ (word >> U(30))) * U(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> U(27))) * U(0x94D049BB133111EB)
    return word ^ (word >> U(31))


@jit
def draw_number(state, i):
    """Return a number of the sequence that `state` begins: those of unlike `i` are unlike."""
    return mixed_seed(state + (i + U(1)) * _GOLDEN)


@jit
def draw_limit(seed, start, n, k):
    """Return the k-th smallest (from 1) of the numbers drawn for n indices from `start` on."""
    state = mixed_seed(seed)
    counts = np.zeros(1 << 16, np.int64)
    for i in range(U(n)):
        counts[draw_number(state, start + i) >> U(48)] += 1
    top = 0
    while k > counts[top]:
        k -= counts[top]
        top += 1
    rest = np.empty(counts[top], np.uint64)
    found = 0
    for i in range(U(n)):
        number = draw_number(state, start + i)
        if number >> U(48) == U(top):
            rest[found] = number
            found += 1
    return np.sort(rest)[k - 1]


@jit
def count_draws(seed, start, n, limit):
    """Return how many of the numbers drawn for n indices from `start` on are at most `limit`."""
    state = mixed_seed(seed)
    count = 0
    for i in range(U(n)):
        count += draw_number(state, start + i) <= limit
    return count


@jit
def mark_draws(seed, start, limit, mask):
    """Set mask[i] (uint8) to 1 where the number drawn for `start` + i is at most `limit`, or 0."""
    state = mixed_seed(seed)
    for i in range(U(mask.size)):
        mask[i] = draw_number(state, start + i) <= limit
