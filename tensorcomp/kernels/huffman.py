"""Canonical length-limited Huffman: code lengths, tables, and four interleaved streams.

A chunk of n symbols is cut into four runs of n // 4 (the last takes the remainder), each its own
bit stream, so that four table look-ups are in flight at once. Codes are written low bit first.
Each symbol is coded by the table of its context.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bits import U, load64, store64
from tensorcomp.kernels.jit import jit

STREAMS = 4
UNROLL = 4  # symbols a 64-bit word must hold at any bit offset: 7 + 4 × 14 bits fit
LONGEST = 14


@jit
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


@jit
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


@jit
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


@jit
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


@jit
def _reverse(code, length):
    reversed_code = 0
    for _ in range(length):
        reversed_code = (reversed_code << 1) | (code & 1)
        code >>= 1
    return reversed_code


@jit
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


@jit
def fill_table(lengths, longest, values, table):
    """Set table[context << longest | bits] = value << 4 | length for every run of bits.

    A uint16 table, for values below 4096, stays in the first-level cache.

    Bits that no code starts with get length 0 and the first value: a damaged stream then stands
    still, and the check of the end positions finds it.
    """
    contexts, alphabet = lengths.shape
    for context in range(contexts):
        base = context << longest
        code = 0
        complete = 0
        for length in range(1, longest + 1):
            for a in range(alphabet):
                if lengths[context, a] == length:
                    complete += 1 << (longest - length)
        if complete < 1 << longest:
            for bits in range(1 << longest):
                table[base + bits] = np.uint32(values[0]) << 4
        for length in range(1, longest + 1):
            for a in range(alphabet):
                if lengths[context, a] == length:
                    entry = (np.uint32(values[a]) << 4) | np.uint32(length)
                    first = _reverse(code, length)
                    for bits in range(first, 1 << longest, 1 << length):
                        table[base + bits] = entry
                    code += 1
            code <<= 1


@jit
def _put(word, used, entry):
    return word | ((entry >> U(8)) << used), used + (entry & U(255))


@jit
def _flush(out, position, word, used):
    store64(out, np.int64(position), word)
    whole = used >> U(3)
    return position + whole, word >> (whole << U(3)), used & U(7)


@jit
def _encode_tail(symbols, contexts, shift, first, last, codes, out, position, word, used):
    for i in range(first, last):
        entry = U(codes[(U(contexts[i]) << shift) | U(symbols[i])])
        word, used = _put(word, used, entry)
        position, word, used = _flush(out, position, word, used)
    return position * U(8) + used


@jit
def encode(symbols, contexts, shift, codes, out, starts, ends):
    """Write four streams from the byte positions `starts` of `out`; set `ends` to end bits.

    symbols (n,) uint8 or uint16, contexts (n,) uint8, codes as `fill_codes` makes them.
    Each stream needs 8 bytes of room behind its last code.
    """
    n = U(symbols.size)
    run = n // U(4)
    stop = run - run % U(UNROLL)
    s = U(shift)
    o1, o2, o3 = run, U(2) * run, U(3) * run
    p0, p1, p2, p3 = U(starts[0]), U(starts[1]), U(starts[2]), U(starts[3])
    w0 = w1 = w2 = w3 = U(0)
    u0 = u1 = u2 = u3 = U(0)
    for i in range(U(0), stop, U(UNROLL)):
        for j in range(UNROLL):
            k = i + U(j)
            w0, u0 = _put(w0, u0, U(codes[(U(contexts[k]) << s) | U(symbols[k])]))
            w1, u1 = _put(w1, u1, U(codes[(U(contexts[o1 + k]) << s) | U(symbols[o1 + k])]))
            w2, u2 = _put(w2, u2, U(codes[(U(contexts[o2 + k]) << s) | U(symbols[o2 + k])]))
            w3, u3 = _put(w3, u3, U(codes[(U(contexts[o3 + k]) << s) | U(symbols[o3 + k])]))
        p0, w0, u0 = _flush(out, p0, w0, u0)
        p1, w1, u1 = _flush(out, p1, w1, u1)
        p2, w2, u2 = _flush(out, p2, w2, u2)
        p3, w3, u3 = _flush(out, p3, w3, u3)
    ends[0] = _encode_tail(symbols, contexts, s, stop, run, codes, out, p0, w0, u0)
    ends[1] = _encode_tail(symbols, contexts, s, o1 + stop, o2, codes, out, p1, w1, u1)
    ends[2] = _encode_tail(symbols, contexts, s, o2 + stop, o3, codes, out, p2, w2, u2)
    ends[3] = _encode_tail(symbols, contexts, s, o3 + stop, n, codes, out, p3, w3, u3)


@jit
def _refill(stream, position, limit):
    return load64(stream, np.int64(min(position >> U(3), limit))) >> (position & U(7))


@jit
def _decode_tail(stream, position, limit, table, longest, contexts, first, last, out):
    mask = (U(1) << longest) - U(1)
    for i in range(first, last):
        bits = _refill(stream, position, limit) & mask
        entry = table[(U(contexts[i]) << longest) | bits]
        out[i] = entry >> 4
        position += U(entry & 15)
    return position


@jit
def decode(stream, starts, table, longest, contexts, out, ends):
    """Read four streams from the byte positions `starts`; set `ends` to the bits reached.

    stream uint8 with 8 bytes behind the last code, table as `fill_table` makes it, contexts and
    out (n,). Damaged bytes give wrong symbols but never an access out of bounds.
    """
    n = U(out.size)
    run = n // U(4)
    stop = run - run % U(UNROLL)
    long = U(longest)
    mask = (U(1) << long) - U(1)
    limit = U(stream.size - 8)
    eight = U(8)
    o1, o2, o3 = run, U(2) * run, U(3) * run
    p0, p1 = U(starts[0]) * eight, U(starts[1]) * eight
    p2, p3 = U(starts[2]) * eight, U(starts[3]) * eight
    for i in range(U(0), stop, U(UNROLL)):
        w0 = _refill(stream, p0, limit)
        w1 = _refill(stream, p1, limit)
        w2 = _refill(stream, p2, limit)
        w3 = _refill(stream, p3, limit)
        for j in range(UNROLL):
            k = i + U(j)
            entry = table[(U(contexts[k]) << long) | (w0 & mask)]
            out[k] = entry >> 4
            used = U(entry & 15)
            w0 >>= used
            p0 += used
            entry = table[(U(contexts[o1 + k]) << long) | (w1 & mask)]
            out[o1 + k] = entry >> 4
            used = U(entry & 15)
            w1 >>= used
            p1 += used
            entry = table[(U(contexts[o2 + k]) << long) | (w2 & mask)]
            out[o2 + k] = entry >> 4
            used = U(entry & 15)
            w2 >>= used
            p2 += used
            entry = table[(U(contexts[o3 + k]) << long) | (w3 & mask)]
            out[o3 + k] = entry >> 4
            used = U(entry & 15)
            w3 >>= used
            p3 += used
    ends[0] = _decode_tail(stream, p0, limit, table, long, contexts, stop, run, out)
    ends[1] = _decode_tail(stream, p1, limit, table, long, contexts, o1 + stop, o2, out)
    ends[2] = _decode_tail(stream, p2, limit, table, long, contexts, o2 + stop, o3, out)
    ends[3] = _decode_tail(stream, p3, limit, table, long, contexts, o3 + stop, n, out)
