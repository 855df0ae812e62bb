"""Canonical length-limited Huffman: code lengths, tables, and eight interleaved streams.

Symbol i goes to bit stream i % 8, so that eight table look-ups are in flight at once. Codes are
written low bit first. Each symbol is coded by the table of its context: tables are indexed by
context << bits | symbol when encoding, by context << bits | next bits of the stream when decoding.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bits import U, leading_zeros, load64, store64
from tensorcomp.kernels.jit import jit, quick

STREAMS = 8
UNROLL = 4  # symbols a 64-bit word must hold at any bit offset: 7 + 4 × 14 bits fit
BATCH = STREAMS * UNROLL
LONGEST = 14
MARK = U(1 << 63)


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
    """Set table[context << longest | bits] = length << 3/4 of the width | value, for all bits.

    A uint16 table, for values below 4096, stays in the first-level cache; a uint32 one takes any
    value. Bits that no code starts with get length 0: a damaged stream then stands still, and the
    check of the end positions finds it.
    """
    contexts, alphabet = lengths.shape
    above = 12 if table.itemsize == 2 else 16
    for context in range(contexts):
        base = context << longest
        code = 0
        complete = 0
        for a in range(alphabet):
            if lengths[context, a] > 0:
                complete += 1 << (longest - np.int64(lengths[context, a]))
        if complete < 1 << longest:
            for bits in range(1 << longest):
                table[base + bits] = values[0]
        for length in range(1, longest + 1):
            for a in range(alphabet):
                if lengths[context, a] == length:
                    entry = (length << above) | np.int64(values[a])
                    for bits in range(_reverse(code, length), 1 << longest, 1 << length):
                        table[base + bits] = entry
                    code += 1
            code <<= 1


@jit
def _put(word, used, entry):
    # Only the low byte of `used` counts: it never passes 7 + 4 × 14 bits between two flushes, and
    # what the codes add above it is cut off by the shift and by `_flush`.
    return word | ((entry >> U(8)) << (used & U(63))), used + entry


@jit
def _flush(out, position, word, used):
    store64(out, np.int64(position), word)
    whole = (used & U(63)) >> U(3)
    return position + whole, word >> (whole << U(3)), used & U(7)


@jit
def encode(indices, codes, out, starts, ends):
    """Write eight streams from the byte positions `starts` of `out`; set `ends` to end bits.

    indices (n,) uint8 or uint16 into codes, which `fill_codes` made. Each stream needs 8 bytes of
    room behind its last code.
    """
    words = np.zeros(STREAMS, np.uint64)
    used = np.zeros(STREAMS, np.uint64)
    positions = np.empty(STREAMS, np.uint64)
    for j in range(STREAMS):
        positions[j] = starts[j]
    _encode_four(indices, codes, out, U(0), positions, words, used)
    _encode_four(indices, codes, out, U(4), positions, words, used)
    n = U(indices.size)
    for i in range(n - n % U(BATCH), n):
        j = i & U(STREAMS - 1)
        words[j], used[j] = _put(words[j], used[j], U(codes[indices[i]]))
        positions[j], words[j], used[j] = _flush(out, positions[j], words[j], used[j])
    for j in range(STREAMS):
        ends[j] = positions[j] * U(8) + used[j]


@jit
def _encode_four(indices, codes, out, first, positions, words, used):
    """Write all whole batches of the streams `first` … `first` + 3."""
    one, two, three = U(1), U(2), U(3)
    p0, p1 = positions[first], positions[first + one]
    p2, p3 = positions[first + two], positions[first + three]
    w0 = w1 = w2 = w3 = U(0)
    u0 = u1 = u2 = u3 = U(0)
    n = U(indices.size)
    for i in range(first, n - n % U(BATCH) + first, U(BATCH)):
        for k in range(UNROLL):
            at = i + U(k) * U(STREAMS)
            w0, u0 = _put(w0, u0, U(codes[indices[at]]))
            w1, u1 = _put(w1, u1, U(codes[indices[at + one]]))
            w2, u2 = _put(w2, u2, U(codes[indices[at + two]]))
            w3, u3 = _put(w3, u3, U(codes[indices[at + three]]))
        p0, w0, u0 = _flush(out, p0, w0, u0)
        p1, w1, u1 = _flush(out, p1, w1, u1)
        p2, w2, u2 = _flush(out, p2, w2, u2)
        p3, w3, u3 = _flush(out, p3, w3, u3)
    positions[first], words[first], used[first] = p0, w0, u0
    positions[first + one], words[first + one], used[first + one] = p1, w1, u1
    positions[first + two], words[first + two], used[first + two] = p2, w2, u2
    positions[first + three], words[first + three], used[first + three] = p3, w3, u3


@jit
def _refill(stream, position, limit):
    """Return the bits from `position` on; the highest bit is a mark that tells how many are used.

    At most 56 bits are taken from a word, and it has 57 below the mark at any bit offset.
    """
    return (load64(stream, np.int64(min(position >> U(3), limit))) >> (position & U(7))) | MARK


@jit
def _look_up(table, bases, i, bits):
    return U(table[bits]) if bases is None else U(table[U(bases[i]) | bits])


@jit
def decode(stream, starts, table, longest, bases, out, ends):
    """Read eight streams from the byte positions `starts`; set `ends` to the bits reached.

    stream uint8 with 8 bytes behind the last code; table as `fill_table` makes it; bases (n,)
    uint16, each element's context << longest, or None for a single context; out (n,). Damaged bytes
    give wrong symbols but never an access out of bounds.
    """
    n = U(out.size)
    stop = n - n % U(BATCH)
    mask = (U(1) << U(longest)) - U(1)
    above = U(12) if table.itemsize == 2 else U(16)
    value = (U(1) << above) - U(1)
    limit = U(stream.size - 8)
    p0, p1, p2, p3 = (
        U(starts[0]) * U(8),
        U(starts[1]) * U(8),
        U(starts[2]) * U(8),
        U(starts[3]) * U(8),
    )
    p4, p5, p6, p7 = (
        U(starts[4]) * U(8),
        U(starts[5]) * U(8),
        U(starts[6]) * U(8),
        U(starts[7]) * U(8),
    )
    for i in range(U(0), stop, U(BATCH)):
        w0 = _refill(stream, p0, limit)
        w1 = _refill(stream, p1, limit)
        w2 = _refill(stream, p2, limit)
        w3 = _refill(stream, p3, limit)
        w4 = _refill(stream, p4, limit)
        w5 = _refill(stream, p5, limit)
        w6 = _refill(stream, p6, limit)
        w7 = _refill(stream, p7, limit)
        for k in range(UNROLL):
            at = i + U(k) * U(STREAMS)
            entry = _look_up(table, bases, at, w0 & mask)
            out[at] = entry & value
            w0 >>= entry >> above
            entry = _look_up(table, bases, at + U(1), w1 & mask)
            out[at + U(1)] = entry & value
            w1 >>= entry >> above
            entry = _look_up(table, bases, at + U(2), w2 & mask)
            out[at + U(2)] = entry & value
            w2 >>= entry >> above
            entry = _look_up(table, bases, at + U(3), w3 & mask)
            out[at + U(3)] = entry & value
            w3 >>= entry >> above
            entry = _look_up(table, bases, at + U(4), w4 & mask)
            out[at + U(4)] = entry & value
            w4 >>= entry >> above
            entry = _look_up(table, bases, at + U(5), w5 & mask)
            out[at + U(5)] = entry & value
            w5 >>= entry >> above
            entry = _look_up(table, bases, at + U(6), w6 & mask)
            out[at + U(6)] = entry & value
            w6 >>= entry >> above
            entry = _look_up(table, bases, at + U(7), w7 & mask)
            out[at + U(7)] = entry & value
            w7 >>= entry >> above
        p0 += leading_zeros(w0)
        p1 += leading_zeros(w1)
        p2 += leading_zeros(w2)
        p3 += leading_zeros(w3)
        p4 += leading_zeros(w4)
        p5 += leading_zeros(w5)
        p6 += leading_zeros(w6)
        p7 += leading_zeros(w7)
    ends[0], ends[1], ends[2], ends[3] = p0, p1, p2, p3
    ends[4], ends[5], ends[6], ends[7] = p4, p5, p6, p7
    for i in range(stop, n):
        j = i & U(STREAMS - 1)
        entry = _look_up(table, bases, i, _refill(stream, U(ends[j]), limit) & mask)
        out[i] = entry & value
        ends[j] += np.int64(entry >> above)
