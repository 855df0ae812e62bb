"""Canonical length-limited Huffman codes: their lengths, and the tables made of them.

The tables of one chunk take some microseconds, so these kernels keep the interpreter's lock.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.jit import quick

LONGEST = 14
LENGTH_BITS = 6  # of a decoder's entry: as many as a 64-bit shift looks at
NARROW = 1 << (16 - LENGTH_BITS)
_USUAL = 11  # tables of eight contexts then fit the first-level cache
_TABLE_BITS = 16  # of an index into all contexts' tables


@quick
def code_lengths(counts, longest, lengths):
    """Set `lengths` (K, A) uint8 from `counts` (K, A): Huffman's, cut to `longest`, 0 if absent."""
    contexts, alphabet = counts.shape
    keys = np.empty(alphabet, np.int64)
    depth = np.empty(alphabet, np.int64)
    for context in range(contexts):
        used = 0
        for symbol in range(alphabet):
            lengths[context, symbol] = 0
            if counts[context, symbol] > 0:
                keys[used] = (np.int64(counts[context, symbol]) << 16) | symbol
                used += 1
        if used == 0:
            continue
        if used == 1:
            lengths[context, keys[0] & 0xFFFF] = 1
            continue
        order = np.sort(keys[:used])  # by count, ties by symbol: the same codes everywhere
        for i in range(used):
            depth[i] = order[i] >> 16
        _depths_in_place(depth, used)
        _limit(depth, used, longest)
        for i in range(used):
            lengths[context, order[i] & 0xFFFF] = depth[i]


@quick
def _depths_in_place(a, n):
    """Turn ascending weights into code depths in place (Moffat & Katajainen 1995)."""
    a[0] += a[1]
    root = 0
    leaf = 2
    for node in range(1, n - 1):
        if leaf >= n or a[root] < a[leaf]:
            a[node] = a[root]
            a[root] = node
            root += 1
        else:
            a[node] = a[leaf]
            leaf += 1
        if leaf >= n or (root < node and a[root] < a[leaf]):
            a[node] += a[root]
            a[root] = node
            root += 1
        else:
            a[node] += a[leaf]
            leaf += 1
    a[n - 2] = 0
    for node in range(n - 3, -1, -1):
        a[node] = a[a[node]] + 1
    available = 1
    depth = 0
    root = n - 2
    leaf = n - 1
    while available > 0:
        used = 0
        while root >= 0 and a[root] == depth:
            used += 1
            root -= 1
        while available > used:
            a[leaf] = depth
            leaf -= 1
            available -= 1
        available = 2 * used
        depth += 1


@quick
def _limit(depth, n, longest):
    """Cut depths (rarest first) to `longest`, then restore Kraft's inequality at least cost."""
    total = 0
    for i in range(n):
        depth[i] = min(depth[i], longest)
        total += 1 << (longest - depth[i])
    room = 1 << longest
    i = 0
    while total > room:  # lengthen the rarest code that still can be
        while depth[i] >= longest:
            i += 1
        depth[i] += 1
        total -= 1 << (longest - depth[i])
    for i in range(n - 1, -1, -1):  # give what is left to the most frequent that can use it
        while depth[i] > 1 and total + (1 << (longest - depth[i])) <= room:
            total += 1 << (longest - depth[i])
            depth[i] -= 1


@quick
def valid_lengths(lengths, longest):
    """Return whether every context's code lengths (K, A) make a prefix code of `longest` bits."""
    contexts, alphabet = lengths.shape
    for context in range(contexts):
        total = 0
        for symbol in range(alphabet):
            length = np.int64(lengths[context, symbol])
            if length > longest:
                return False
            if length > 0:
                total += 1 << (longest - length)
        if total > 1 << longest:
            return False
    return True


@quick
def _reverse(code, length):
    reversed_code = 0
    for _ in range(length):
        reversed_code = (reversed_code << 1) | (code & 1)
        code >>= 1
    return reversed_code


@quick
def fill_codes(lengths, longest, symbols, shift, codes):
    """Set codes[context << shift | symbols[a]] = code << 8 | length, canonical, low bit first."""
    contexts, alphabet = lengths.shape
    for context in range(contexts):
        code = 0
        for length in range(1, longest + 1):
            for a in range(alphabet):
                if lengths[context, a] == length:
                    codes[(context << shift) | symbols[a]] = (_reverse(code, length) << 8) | length
                    code += 1
            code <<= 1


@quick
def fill_table(lengths, longest, values, table):
    """Set table[context << longest | bits] = value << `LENGTH_BITS` | length, for all bits.

    A uint16 table, for values below `NARROW`, stays in the first-level cache; a uint32 one takes
    any value. Bits that no code starts with get length 0: a damaged stream then stands still, and
    the check of the end positions finds it.
    """
    contexts, alphabet = lengths.shape
    for context in range(contexts):
        base = context << longest
        code = 0
        complete = 0
        for a in range(alphabet):
            if lengths[context, a] > 0:
                complete += 1 << (longest - np.int64(lengths[context, a]))
        if complete < 1 << longest:
            for bits in range(1 << longest):
                table[base + bits] = np.int64(values[0]) << LENGTH_BITS
        for length in range(1, longest + 1):
            for a in range(alphabet):
                if lengths[context, a] == length:
                    entry = (np.int64(values[a]) << LENGTH_BITS) | length
                    for bits in range(_reverse(code, length), 1 << longest, 1 << length):
                        table[base + bits] = entry
                    code += 1
            code <<= 1


@quick
def longest_for(symbols, contexts):
    """Return how long the codes of so many symbols may be in so many contexts."""
    bits = 0
    while (symbols - 1) >> bits > 0:
        bits += 1
    return max(_USUAL if contexts > 1 else _USUAL + 1, bits + 2)


@quick
def cheapest_lengths(counts, longest, level_bits):
    """Return the code lengths, (contexts, symbols) uint8, of the number of contexts that is least.

    counts (K, A) int64 with K a power of two; neighbouring contexts are joined two by two as long
    as that pays. Counted in bits are the codes, exactly, 2 for a table's entry, and `level_bits`
    for what more than one context needs besides.
    """
    number, alphabet = counts.shape
    best = np.empty((0, alphabet), np.uint8)
    least = np.int64(0)
    while True:
        if number << longest <= 1 << _TABLE_BITS:
            lengths = np.empty((number, alphabet), np.uint8)
            code_lengths(counts, longest, lengths)
            cost = np.int64(2 * lengths.size + (level_bits if number > 1 else 0))
            for k in range(number):
                for a in range(alphabet):
                    cost += counts[k, a] * np.int64(lengths[k, a])
            if best.size == 0 or cost < least:
                best, least = lengths, cost
        if number == 1:
            return best
        number //= 2
        joined = np.empty((number, alphabet), np.int64)
        for k in range(number):
            for a in range(alphabet):
                joined[k, a] = counts[2 * k, a] + counts[2 * k + 1, a]
        counts = joined


@quick
def coded_bits(counts, lengths):
    """Return the bits of all codes; each row of `lengths` stands for as many of `counts`."""
    step = counts.shape[0] // lengths.shape[0]
    bits = np.int64(0)
    for k in range(counts.shape[0]):
        for a in range(counts.shape[1]):
            bits += counts[k, a] * np.int64(lengths[k // step, a])
    return bits
