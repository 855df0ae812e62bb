"""Huffman coding of a chunk: eight interleaved streams, each symbol by the code of its context.

Symbol i goes to bit stream i % 8, so that eight table look-ups are in flight at once. Codes are
written low bit first. Tables are indexed by context << bits | symbol when encoding, by
context << bits | next bits of the stream when decoding.

A chunk is encoded, and decoded, in one call: threads that code chunks side by side then seldom wait
for the interpreter's lock.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bit_io import flush_codes, put_code
from tensorcomp.kernels.bits import U, leading_zeros, load64
from tensorcomp.kernels.contexts import histogram
from tensorcomp.kernels.huffman_codes import (
    LENGTH_BITS,
    LONGEST,
    NARROW,
    cheapest_lengths,
    fill_codes,
    fill_table,
    longest_for,
)
from tensorcomp.kernels.jit import jit

STREAMS = 8
UNROLL = 4  # symbols a 64-bit word must hold at any bit offset: 7 + 4 × 14 bits fit
BATCH = STREAMS * UNROLL
MARK = U(1 << 63)
_PADDING = 8  # a stream's last store reaches so far behind it


@jit
def encode_array(indices, bits, contexts, level_bits):
    """Encode context << bits | symbol, (n,), in the number of contexts that costs least.

    Returns (code lengths (K, A) uint8, symbols (A,) uint16, the longest code allowed, the streams'
    buffer, where each starts in it, the bits of each). There are no code lengths if there are too
    many symbols.
    """
    counters = np.zeros((2, contexts << bits), np.uint32)
    histogram(indices, counters)
    symbols, counts = count_symbols(counters, contexts, bits)
    longest = longest_for(symbols.size, contexts)
    if longest > LONGEST:
        nothing = np.zeros(STREAMS, np.int64)
        return np.empty((0, 0), np.uint8), symbols, longest, np.empty(0, np.uint8), nothing, nothing
    lengths = cheapest_lengths(counts, longest, level_bits)
    codes = spread_codes(lengths, longest, symbols, contexts, bits)
    out, starts, used = encode_streams(indices, codes, longest)
    return lengths, symbols, longest, out, starts, used


@jit
def count_symbols(counters, contexts, bits):
    """Return the symbols that occur, (A,) uint16, and their counts (contexts, A) int64."""
    size = 1 << bits
    symbols = np.empty(size, np.uint16)
    table = np.zeros((contexts, size), np.int64)
    found = 0
    for symbol in range(size):
        occurs = np.int64(0)
        for k in range(contexts):
            at = (k << bits) | symbol
            count = np.int64(counters[0, at]) + np.int64(counters[1, at])
            table[k, found] = count
            occurs += count
        if occurs > 0:
            symbols[found] = symbol
            found += 1
    counts = np.empty((contexts, found), np.int64)
    for k in range(contexts):
        counts[k] = table[k, :found]
    return symbols[:found].copy(), counts


@jit
def spread_codes(lengths, longest, symbols, contexts, bits):
    """Return code << 8 | length at context << bits | symbol; joined contexts have one code."""
    step = contexts // lengths.shape[0]
    codes = np.zeros(contexts << bits, np.uint32)
    for k in range(contexts):
        first = k // step
        fill_codes(lengths[first : first + 1], longest, symbols, bits, codes[k << bits :])
    return codes


@jit
def encode_streams(indices, codes, longest):
    """Return a buffer with eight streams, where each starts, and the bits of each."""
    room = (indices.size // STREAMS + 1) * longest // 8 + _PADDING + 1
    streams = np.empty(STREAMS * room, np.uint8)
    starts = room * np.arange(STREAMS)
    used = np.empty(STREAMS, np.int64)
    encode(indices, codes, streams, starts, used)
    return streams, starts, used - 8 * starts


@jit
def decode_array(stream, positions, lengths, longest, symbols, bases, out):
    """Decode (n,) symbols into `out`; see `decode`. lengths and symbols as from `encode_array`."""
    size = lengths.shape[0] << longest
    if symbols[symbols.size - 1] < NARROW:
        narrow = np.empty(size, np.uint16)
        fill_table(lengths, longest, symbols, narrow)
        decode(stream, positions, narrow, longest, bases, out)
    else:
        wide = np.empty(size, np.uint32)
        fill_table(lengths, longest, symbols, wide)
        decode(stream, positions, wide, longest, bases, out)


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
        words[j], used[j] = put_code(words[j], used[j], U(codes[indices[i]]))
        positions[j], words[j], used[j] = flush_codes(out, positions[j], words[j], used[j])
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
            w0, u0 = put_code(w0, u0, U(codes[indices[at]]))
            w1, u1 = put_code(w1, u1, U(codes[indices[at + one]]))
            w2, u2 = put_code(w2, u2, U(codes[indices[at + two]]))
            w3, u3 = put_code(w3, u3, U(codes[indices[at + three]]))
        p0, w0, u0 = flush_codes(out, p0, w0, u0)
        p1, w1, u1 = flush_codes(out, p1, w1, u1)
        p2, w2, u2 = flush_codes(out, p2, w2, u2)
        p3, w3, u3 = flush_codes(out, p3, w3, u3)
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
def decode(stream, positions, table, longest, bases, out):
    """Read eight streams from the bit `positions` (8,) int64 on, and move these to the next ones.

    stream uint8 with 8 bytes behind the last code; table as `fill_table` makes it; bases (n,)
    uint16, each element's context << longest, or None for a single context; out (n,), where n is
    a multiple of 8 unless nothing follows. Damaged bytes give wrong symbols but never an access out
    of bounds.
    """
    n = U(out.size)
    stop = n - n % U(BATCH)
    mask = (U(1) << U(longest)) - U(1)
    limit = U(stream.size - 8)
    p0, p1, p2, p3 = U(positions[0]), U(positions[1]), U(positions[2]), U(positions[3])
    p4, p5, p6, p7 = U(positions[4]), U(positions[5]), U(positions[6]), U(positions[7])
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
            out[at] = entry >> U(LENGTH_BITS)
            w0 >>= entry & U(63)
            entry = _look_up(table, bases, at + U(1), w1 & mask)
            out[at + U(1)] = entry >> U(LENGTH_BITS)
            w1 >>= entry & U(63)
            entry = _look_up(table, bases, at + U(2), w2 & mask)
            out[at + U(2)] = entry >> U(LENGTH_BITS)
            w2 >>= entry & U(63)
            entry = _look_up(table, bases, at + U(3), w3 & mask)
            out[at + U(3)] = entry >> U(LENGTH_BITS)
            w3 >>= entry & U(63)
            entry = _look_up(table, bases, at + U(4), w4 & mask)
            out[at + U(4)] = entry >> U(LENGTH_BITS)
            w4 >>= entry & U(63)
            entry = _look_up(table, bases, at + U(5), w5 & mask)
            out[at + U(5)] = entry >> U(LENGTH_BITS)
            w5 >>= entry & U(63)
            entry = _look_up(table, bases, at + U(6), w6 & mask)
            out[at + U(6)] = entry >> U(LENGTH_BITS)
            w6 >>= entry & U(63)
            entry = _look_up(table, bases, at + U(7), w7 & mask)
            out[at + U(7)] = entry >> U(LENGTH_BITS)
            w7 >>= entry & U(63)
        p0 += leading_zeros(w0)
        p1 += leading_zeros(w1)
        p2 += leading_zeros(w2)
        p3 += leading_zeros(w3)
        p4 += leading_zeros(w4)
        p5 += leading_zeros(w5)
        p6 += leading_zeros(w6)
        p7 += leading_zeros(w7)
    positions[0], positions[1], positions[2], positions[3] = p0, p1, p2, p3
    positions[4], positions[5], positions[6], positions[7] = p4, p5, p6, p7
    for i in range(stop, n):
        j = i & U(STREAMS - 1)
        entry = _look_up(table, bases, i, _refill(stream, U(positions[j]), limit) & mask)
        out[i] = entry >> U(LENGTH_BITS)
        positions[j] += np.int64(entry & U(63))
