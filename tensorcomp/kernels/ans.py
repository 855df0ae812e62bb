"""Tabled asymmetric numeral systems (tANS): tables, and four interleaved streams.

A table has 2**states states. A symbol of frequency f owns f of them; coding it from state x puts
out the low bits of x that bring x into f .. 2 f - 1, and moves to the state that this number stands
for. The encoder goes backwards over the symbols and writes each stream backwards, so that the
decoder reads forwards. Symbol i goes to stream i % 4, so that four table look-ups are in flight at
once. Each symbol is coded by the table of its context.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bit_io import bit_length
from tensorcomp.kernels.bits import U, leading_zeros, load64, store64
from tensorcomp.kernels.jit import jit, quick

STREAMS = 4
UNROLL = 4  # symbols a 64-bit word must hold at any bit offset: 7 + 4 × 12 bits fit
BATCH = STREAMS * UNROLL
MARK = U(1 << 63)


@quick
def _spread(frequencies, states, owners):
    """Set owners[state] to the index of the symbol that owns it, each one's states far apart."""
    total = np.int64(1) << states
    step = (total >> 1) + (total >> 3) + 3  # odd, so that every state is met once
    state = np.int64(0)
    for a in range(frequencies.size):
        for _ in range(frequencies[a]):
            owners[state] = a
            state = (state + step) & (total - 1)


@quick
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


@quick
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
def encode(indices, entries, successors, states, out, stops, bits, first):
    """Write four streams backwards from the byte positions `stops` of `out`.

    indices (n,) uint8 or uint16 into entries; entries and successors as `fill_encoder` makes them.
    Sets `bits` (4,) to the streams' bits and `first` (4,) to the decoder's first states. Each
    stream needs 8 bytes of room before its first bit.
    """
    start = U(1) << U(states)
    words = np.zeros(STREAMS, np.uint64)
    used = np.zeros(STREAMS, np.uint64)
    positions = np.empty(STREAMS, np.uint64)
    x = np.full(STREAMS, start, np.uint64)
    for j in range(STREAMS):
        positions[j] = stops[j]
    n = U(indices.size)
    stop = n - n % U(BATCH)
    for i in range(n - stop):
        at = n - U(1) - U(i)
        j = at & U(STREAMS - 1)
        entry = entries[indices[at]]
        words[j], used[j], x[j] = _put(words[j], used[j], x[j], entry, successors)
        positions[j], used[j] = _flush(out, positions[j], words[j], used[j])
    _encode_batches(indices, entries, successors, out, positions, words, used, x)
    for j in range(STREAMS):
        bits[j] = (U(stops[j]) - positions[j]) * U(8) + used[j]
        _flush(out, positions[j], words[j], used[j])
        first[j] = x[j] - start


@jit
def _encode_batches(indices, entries, successors, out, positions, words, used, x):
    """Write all whole batches, the last one first."""
    one, two, three = U(1), U(2), U(3)
    p0, p1, p2, p3 = positions[0], positions[1], positions[2], positions[3]
    w0, w1, w2, w3 = words[0], words[1], words[2], words[3]
    u0, u1, u2, u3 = used[0], used[1], used[2], used[3]
    x0, x1, x2, x3 = x[0], x[1], x[2], x[3]
    n = U(indices.size)
    stop = n - n % U(BATCH)
    for i in range(U(0), stop, U(BATCH)):
        for k in range(1, UNROLL + 1):
            at = stop - i - U(k) * U(STREAMS)
            w3, u3, x3 = _put(w3, u3, x3, entries[indices[at + three]], successors)
            w2, u2, x2 = _put(w2, u2, x2, entries[indices[at + two]], successors)
            w1, u1, x1 = _put(w1, u1, x1, entries[indices[at + one]], successors)
            w0, u0, x0 = _put(w0, u0, x0, entries[indices[at]], successors)
        p0, u0 = _flush(out, p0, w0, u0)
        p1, u1 = _flush(out, p1, w1, u1)
        p2, u2 = _flush(out, p2, w2, u2)
        p3, u3 = _flush(out, p3, w3, u3)
    positions[0], positions[1], positions[2], positions[3] = p0, p1, p2, p3
    words[0], words[1], words[2], words[3] = w0, w1, w2, w3
    used[0], used[1], used[2], used[3] = u0, u1, u2, u3
    x[0], x[1], x[2], x[3] = x0, x1, x2, x3


@jit
def _refill(stream, position, limit):
    """Return the bits from `position` on; the highest bit is a mark that tells how many are used.

    At most 48 bits are taken from a word, and it has 57 below the mark at any bit offset.
    """
    return (load64(stream, np.int64(min(position >> U(3), limit))) >> (position & U(7))) | MARK


@jit
def _take(table, bases, at, word, x, out):
    entry = U(table[x]) if bases is None else U(table[U(bases[at]) | x])
    out[at] = entry & U(0xFFFF)
    used = (entry >> U(16)) & U(15)
    return word >> used, (entry >> U(20)) + (word & ((U(1) << used) - U(1)))


@jit
def decode(stream, starts, table, bases, out, ends, x):
    """Read four streams from the bit positions `starts` and the states `x` (4,) uint64.

    stream uint8 with 8 bytes behind the last bit; table as `fill_decoder` makes it; bases (n,)
    uint16, each element's context << states, or None for a single context; out (n,). Sets `ends`
    to the bit positions reached and `x` to the states reached. Damaged bytes give wrong symbols but
    never an access out of bounds.
    """
    n = U(out.size)
    stop = n - n % U(BATCH)
    limit = U(stream.size - 8)
    one, two, three = U(1), U(2), U(3)
    p0, p1, p2, p3 = U(starts[0]), U(starts[1]), U(starts[2]), U(starts[3])
    x0, x1, x2, x3 = x[0], x[1], x[2], x[3]
    for i in range(U(0), stop, U(BATCH)):
        w0 = _refill(stream, p0, limit)
        w1 = _refill(stream, p1, limit)
        w2 = _refill(stream, p2, limit)
        w3 = _refill(stream, p3, limit)
        for k in range(UNROLL):
            at = i + U(k) * U(STREAMS)
            w0, x0 = _take(table, bases, at, w0, x0, out)
            w1, x1 = _take(table, bases, at + one, w1, x1, out)
            w2, x2 = _take(table, bases, at + two, w2, x2, out)
            w3, x3 = _take(table, bases, at + three, w3, x3, out)
        p0 += leading_zeros(w0)
        p1 += leading_zeros(w1)
        p2 += leading_zeros(w2)
        p3 += leading_zeros(w3)
    ends[0], ends[1], ends[2], ends[3] = p0, p1, p2, p3
    x[0], x[1], x[2], x[3] = x0, x1, x2, x3
    for i in range(stop, n):
        j = i & U(STREAMS - 1)
        word, x[j] = _take(table, bases, i, _refill(stream, U(ends[j]), limit), x[j], out)
        ends[j] += np.int64(leading_zeros(word))
