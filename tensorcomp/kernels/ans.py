"""Tabled asymmetric numeral systems (tANS): tables, and four interleaved streams.

A table has 2**states states. A symbol of frequency f owns f of them; coding it from state x puts out
the low bits of x that bring x into f .. 2 f - 1, and moves to the state that this number stands
for. The encoder goes backwards over the symbols and writes each stream backwards, so that the
decoder reads forwards. A chunk of n symbols is cut into four runs of n // 4 (the last takes the
remainder), each its own stream, so that four table look-ups are in flight at once.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bits import U, load64, store64
from tensorcomp.kernels.frequencies import bit_length
from tensorcomp.kernels.jit import jit

UNROLL = 4  # symbols a 64-bit word must hold at any bit offset: 7 + 4 × 12 bits fit


@jit
def _spread(frequencies, states, owners):
    """Set owners[state] to the index of the symbol that owns it, each one's states far apart."""
    total = np.int64(1) << states
    step = (total >> 1) + (total >> 3) + 3  # odd, so that every state is met once
    state = np.int64(0)
    for a in range(frequencies.size):
        for _ in range(frequencies[a]):
            owners[state] = a
            state = (state + step) & (total - 1)


@jit
def fill_decoder(frequencies, states, values, table):
    """Set table[context << states | state] = base << 20 | bits << 16 | value, uint32.

    The next state is base + the next `bits` bits of the stream, always below 2**states if each row
    of `frequencies` (K, A) adds up to that. A row of zeros gives entries of 0.
    """
    total = np.int64(1) << states
    owners = np.empty(total, np.int64)
    following = np.empty(values.size, np.int64)
    for context in range(frequencies.shape[0]):
        start = np.int64(context) << states
        following[:] = frequencies[context]
        if following.sum() != total:
            table[start : start + total] = 0
            continue
        _spread(frequencies[context], states, owners)
        for state in range(total):
            a = owners[state]
            number = following[a]
            following[a] += 1
            bits = states + 1 - bit_length(number)
            base = (number << bits) - total
            table[start + state] = (base << 20) | (bits << 16) | np.int64(values[a])


@jit
def fill_encoder(frequencies, states, values, shift, entries, successors):
    """Set the encoder's tables.

    entries[context << shift | value] uint64 = find << 32 | delta, where from state x (2**states and
    up) bits = (x + delta) >> 16 are put out, and the next state is successors[(x >> bits) + find],
    uint16, ((K + 1) << states,).
    """
    total = np.int64(1) << states
    owners = np.empty(total, np.int64)
    following = np.empty(values.size, np.int64)
    for context in range(frequencies.shape[0]):
        row = frequencies[context]
        below = np.int64(context + 1) << states  # a table more, so that no `find` is negative
        if row.sum() != total:
            continue
        for a in range(row.size):
            following[a] = below
            most = states + 1 - bit_length(row[a] - 1)
            delta = (most << 16) - (row[a] << most)
            if row[a] > 0:
                index = (np.int64(context) << shift) | np.int64(values[a])
                entries[index] = (U(below - row[a]) << U(32)) | U(delta)
            below += row[a]
        _spread(row, states, owners)
        for state in range(total):
            a = owners[state]
            successors[following[a]] = total + state
            following[a] += 1


@jit
def _put(word, used, x, entry, successors):
    bits = (x + (entry & U(0xFFFFFFFF))) >> U(16)
    word = (word << bits) | (x & ((U(1) << bits) - U(1)))
    return word, used + bits, U(successors[(x >> bits) + (entry >> U(32))])


@jit
def _flush(out, position, word, used):
    """Store the upper whole bytes of the `used` bits of `word` below `position`."""
    store64(out, np.int64(position - U(8)), (word << (U(63) - used)) << U(1))
    return position - (used >> U(3)), used & U(7)


@jit
def _encode_tail(symbols, contexts, shift, first, last, entries, successors, out, position, x):
    word = used = U(0)
    for i in range(last - first):
        k = last - U(1) - U(i)
        entry = entries[(U(contexts[k]) << shift) | U(symbols[k])]
        word, used, x = _put(word, used, x, entry, successors)
        position, used = _flush(out, position, word, used)
    return position, word, used, x


@jit
def _finish(out, position, word, used, end):
    """Store the last bits; return how many the stream has."""
    bits = (end - position) * U(8) + used
    _flush(out, position, word, used)
    return bits


@jit
def encode(symbols, contexts, shift, entries, successors, states, out, stops, bits, last):
    """Write four streams backwards from the byte positions `stops` of `out`.

    symbols (n,) uint8 or uint16, contexts (n,) uint8, entries and successors as `fill_encoder`
    makes them. Sets `bits` (4,) to the streams' bits and `last` (4,) to the decoder's first states.
    Each stream needs 8 bytes of room before its first bit.
    """
    n = U(symbols.size)
    run = n // U(4)
    stop = run - run % U(UNROLL)
    s = U(shift)
    o1, o2, o3 = run, U(2) * run, U(3) * run
    x = U(1) << U(states)
    e0, e1, e2, e3 = U(stops[0]), U(stops[1]), U(stops[2]), U(stops[3])
    p0, w0, u0, x0 = _encode_tail(symbols, contexts, s, stop, run, entries, successors, out, e0, x)
    p1, w1, u1, x1 = _encode_tail(
        symbols, contexts, s, o1 + stop, o2, entries, successors, out, e1, x
    )
    p2, w2, u2, x2 = _encode_tail(
        symbols, contexts, s, o2 + stop, o3, entries, successors, out, e2, x
    )
    p3, w3, u3, x3 = _encode_tail(
        symbols, contexts, s, o3 + stop, n, entries, successors, out, e3, x
    )
    for i in range(U(0), stop, U(UNROLL)):
        for j in range(1, UNROLL + 1):
            k = stop - i - U(j)
            entry = entries[(U(contexts[k]) << s) | U(symbols[k])]
            w0, u0, x0 = _put(w0, u0, x0, entry, successors)
            entry = entries[(U(contexts[o1 + k]) << s) | U(symbols[o1 + k])]
            w1, u1, x1 = _put(w1, u1, x1, entry, successors)
            entry = entries[(U(contexts[o2 + k]) << s) | U(symbols[o2 + k])]
            w2, u2, x2 = _put(w2, u2, x2, entry, successors)
            entry = entries[(U(contexts[o3 + k]) << s) | U(symbols[o3 + k])]
            w3, u3, x3 = _put(w3, u3, x3, entry, successors)
        p0, u0 = _flush(out, p0, w0, u0)
        p1, u1 = _flush(out, p1, w1, u1)
        p2, u2 = _flush(out, p2, w2, u2)
        p3, u3 = _flush(out, p3, w3, u3)
    bits[0] = _finish(out, p0, w0, u0, e0)
    bits[1] = _finish(out, p1, w1, u1, e1)
    bits[2] = _finish(out, p2, w2, u2, e2)
    bits[3] = _finish(out, p3, w3, u3, e3)
    last[0], last[1], last[2], last[3] = x0 - x, x1 - x, x2 - x, x3 - x


@jit
def _refill(stream, position, limit):
    return load64(stream, np.int64(min(position >> U(3), limit))) >> (position & U(7))


@jit
def _decode_tail(stream, position, limit, table, states, x, contexts, first, last, out):
    for i in range(first, last):
        word = _refill(stream, position, limit)
        entry = U(table[(U(contexts[i]) << states) | x])
        out[i] = entry & U(0xFFFF)
        used = (entry >> U(16)) & U(15)
        x = (entry >> U(20)) + (word & ((U(1) << used) - U(1)))
        position += used
    return position, x


@jit
def decode(stream, starts, table, states, contexts, out, ends, last):
    """Read four streams from the bit positions `starts`, from the states `last` (4,) on.

    stream uint8 with 8 bytes behind the last bit, table as `fill_decoder` makes it, contexts and
    out (n,). Sets `ends` to the bit positions reached and `last` to the last states. Damaged bytes
    give wrong symbols but never an access out of bounds.
    """
    n = U(out.size)
    run = n // U(4)
    stop = run - run % U(UNROLL)
    s = U(states)
    one, nibble, low = U(1), U(15), U(0xFFFF)
    limit = U(stream.size - 8)
    o1, o2, o3 = run, U(2) * run, U(3) * run
    p0, p1, p2, p3 = U(starts[0]), U(starts[1]), U(starts[2]), U(starts[3])
    x0, x1, x2, x3 = U(last[0]), U(last[1]), U(last[2]), U(last[3])
    for i in range(U(0), stop, U(UNROLL)):
        w0 = _refill(stream, p0, limit)
        w1 = _refill(stream, p1, limit)
        w2 = _refill(stream, p2, limit)
        w3 = _refill(stream, p3, limit)
        for j in range(UNROLL):
            k = i + U(j)
            entry = U(table[(U(contexts[k]) << s) | x0])
            out[k] = entry & low
            used = (entry >> U(16)) & nibble
            x0 = (entry >> U(20)) + (w0 & ((one << used) - one))
            w0 >>= used
            p0 += used
            entry = U(table[(U(contexts[o1 + k]) << s) | x1])
            out[o1 + k] = entry & low
            used = (entry >> U(16)) & nibble
            x1 = (entry >> U(20)) + (w1 & ((one << used) - one))
            w1 >>= used
            p1 += used
            entry = U(table[(U(contexts[o2 + k]) << s) | x2])
            out[o2 + k] = entry & low
            used = (entry >> U(16)) & nibble
            x2 = (entry >> U(20)) + (w2 & ((one << used) - one))
            w2 >>= used
            p2 += used
            entry = U(table[(U(contexts[o3 + k]) << s) | x3])
            out[o3 + k] = entry & low
            used = (entry >> U(16)) & nibble
            x3 = (entry >> U(20)) + (w3 & ((one << used) - one))
            w3 >>= used
            p3 += used
    ends[0], last[0] = _decode_tail(stream, p0, limit, table, s, x0, contexts, stop, run, out)
    ends[1], last[1] = _decode_tail(stream, p1, limit, table, s, x1, contexts, o1 + stop, o2, out)
    ends[2], last[2] = _decode_tail(stream, p2, limit, table, s, x2, contexts, o2 + stop, o3, out)
    ends[3], last[3] = _decode_tail(stream, p3, limit, table, s, x3, contexts, o3 + stop, n, out)
