"""Huffman coding of runs of bytes: two symbols a step one way, up to four a step the other.

A run is cut into six equal parts, and part j goes to bit stream j; what six does not divide is
added to the last part. Runs follow each other in the streams. All symbols of a run have one code,
so that an entry of a table can stand for several: the encoder's for any two neighbours, the
decoder's for all symbols that follow from the same bits. (As in Zstandard's double-symbol decoder;
as streams then advance by what they find, each has a part of its own to write.)
"""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bit_io import flush_codes, put_code
from tensorcomp.kernels.bits import U, leading_zeros, load16, load64, store32
from tensorcomp.kernels.huffman_codes import LENGTH_BITS, fill_table
from tensorcomp.kernels.jit import jit, quick

STREAMS = 6  # their words, positions and places just fit the registers
LONGEST = 11  # bits of a code
_LOOKS = 5  # a word has 56 bits below its mark
_MOST = 4  # symbols of a decoder's entry
_STEP = 4  # symbols between two flushes
_MARK = U(1 << 63)
_PADDING = 8
_PAIRS_PAY = 8  # symbols of a run for each pair that it may have, to code pairs by a table
_PAIRS_COUNT = 16  # and to count pairs


@jit
def count_run(run, alphabet, counts):
    """Add how often each symbol occurs in a run (n,) uint8 to `counts` (256,) int64.

    alphabet is above all symbols. An increment has to wait for the one before it if that was of the
    same counter, or of one that is not in the nearest cache: pairs halve their number.
    """
    done = np.int64(0)
    if run.size >= _PAIRS_COUNT * alphabet * alphabet:
        done = run.size - run.size % 4
        _count_pairs(run[:done], alphabet, counts)
    single = np.zeros((2, 256), np.uint32)
    rest = run[done:]
    size = U(rest.size)
    for i in range(U(0), size - size % U(2), U(2)):
        single[0, rest[i]] += np.uint32(1)
        single[1, rest[i + U(1)]] += np.uint32(1)
    if size % U(2) > U(0):
        single[0, rest[size - U(1)]] += np.uint32(1)
    for symbol in range(alphabet):
        counts[symbol] += np.int64(single[0, symbol]) + np.int64(single[1, symbol])


@jit
def _count_pairs(run, alphabet, counts):
    pairs = np.zeros(alphabet << 8, np.uint32)
    for i in range(U(0), U(run.size), U(4)):
        pairs[load16(run, i)] += np.uint32(1)
        pairs[load16(run, i + U(2))] += np.uint32(1)
    for second in range(alphabet):
        total = np.int64(0)
        for first in range(alphabet):
            count = np.int64(pairs[(second << 8) | first])
            total += count
            counts[first] += count
        counts[second] += total


@jit
def room_of(runs, longest):
    """Return the bytes that a stream of runs of these sizes, (K,), takes at most."""
    symbols = np.int64(0)
    for k in range(runs.size):
        symbols += runs[k] // STREAMS + STREAMS
    return symbols * longest // 8 + 2 * _PADDING


@jit
def encode_run(run, codes, out, positions, words, used):
    """Write a run (n,) uint8 from the bytes `positions` (6,) uint64 on, and move these.

    codes (A,) uint32 as `huffman_codes.fill_codes` makes them, A above all symbols; words and used
    (6,) uint64 are the bits that are not written yet, and how many: zeros at first.
    """
    part = run.size // STREAMS
    done = part - part % _STEP
    if run.size >= _PAIRS_PAY * codes.size * codes.size:
        pairs = np.empty(codes.size << 8, np.uint32)
        _fill_pairs(codes, pairs)
        for first in (0, 3):
            _encode_three(run, part, done, codes, pairs, out, first, positions, words, used)
    else:
        for first in (0, 3):
            _encode_three(run, part, done, codes, None, out, first, positions, words, used)
    for j in range(STREAMS):
        stop = (j + 1) * part if j < STREAMS - 1 else run.size
        for i in range(j * part + done, stop):
            words[j], used[j] = put_code(words[j], used[j], U(codes[run[i]]))
            positions[j], words[j], used[j] = flush_codes(out, positions[j], words[j], used[j])


@quick
def _fill_pairs(codes, pairs):
    """Set pairs[b << 8 | a] to the code of a and then b."""
    for b in range(codes.size):
        second = U(codes[b])
        for a in range(codes.size):
            first = U(codes[a])
            length = first & U(255)
            code = (first >> U(8)) | ((second >> U(8)) << length)
            pairs[(b << 8) | a] = code << U(8) | (length + (second & U(255)))


@jit
def _encode_three(run, part, size, codes, pairs, out, first, positions, words, used):
    """Write the first `size` symbols of the parts `first` … `first` + 2; pairs may be None."""
    one, two = first + 1, first + 2
    p0, p1, p2 = positions[first], positions[one], positions[two]
    w0, w1, w2 = words[first], words[one], words[two]
    u0, u1, u2 = used[first], used[one], used[two]
    a0, a1, a2 = U(first * part), U(one * part), U(two * part)
    for i in range(U(0), U(size), U(_STEP)):
        for k in range(0, _STEP, 2):
            at = i + U(k)
            w0, u0 = _put_two(run, a0 + at, codes, pairs, w0, u0)
            w1, u1 = _put_two(run, a1 + at, codes, pairs, w1, u1)
            w2, u2 = _put_two(run, a2 + at, codes, pairs, w2, u2)
        p0, w0, u0 = flush_codes(out, p0, w0, u0)
        p1, w1, u1 = flush_codes(out, p1, w1, u1)
        p2, w2, u2 = flush_codes(out, p2, w2, u2)
    positions[first], positions[one], positions[two] = p0, p1, p2
    words[first], words[one], words[two] = w0, w1, w2
    used[first], used[one], used[two] = u0, u1, u2


@jit
def _put_two(run, at, codes, pairs, word, used):
    if pairs is None:
        word, used = put_code(word, used, U(codes[run[at]]))
        return put_code(word, used, U(codes[run[at + U(1)]]))
    return put_code(word, used, U(pairs[load16(run, at)]))


@quick
def fill_entries(lengths, longest, values, single, table):
    """Set table[bits] to the symbols that `bits` begin with, at most four.

    lengths (1, A) uint8, values (A,) uint16 below 256; single (1 << longest,) uint16 is
    overwritten; table (1 << longest,) uint64. An entry is symbols, the first one lowest, | bits of
    all their codes << 32 | number << 56. Bits that no code starts with give one symbol of no bits:
    a damaged stream then stands still, and the check of the end positions finds it.
    """
    fill_table(lengths, longest, values, single)
    length_mask = U((1 << LENGTH_BITS) - 1)
    most = U(longest)
    for bits in range(U(single.size)):
        entry = U(single[bits])
        symbols, used, number = entry >> U(LENGTH_BITS), entry & length_mask, U(1)
        while number < U(_MOST) and used > U(0):
            entry = U(single[bits >> used])
            length = entry & length_mask
            if length == U(0) or used + length > most:
                break
            symbols |= (entry >> U(LENGTH_BITS)) << (U(8) * number)
            used += length
            number += U(1)
        table[bits] = symbols | used << U(32) | number << U(56)


@jit
def _refill(stream, position):
    """Return the bits from `position` on, under a mark that tells how many of them are used."""
    return (load64(stream, position >> U(3)) >> (position & U(7))) | _MARK


@jit
def decode_run(stream, positions, table, longest, lengths, out):
    """Read a run from the bit `positions` (6,) int64 on, and move these to the next one.

    stream uint8 with 8 bytes behind the last code; table as `fill_entries` makes it; lengths
    (256,) uint8, of each symbol's code; out (n,) uint8. Damaged bytes give wrong symbols but never
    an access out of bounds.
    """
    part = U(out.size // STREAMS)
    mask = (U(1) << U(longest)) - U(1)
    limit = U(stream.size - 8)
    p0, p1, p2 = U(positions[0]), U(positions[1]), U(positions[2])
    p3, p4, p5 = U(positions[3]), U(positions[4]), U(positions[5])
    s1 = part
    s2 = s1 + part
    s3 = s2 + part
    s4 = s3 + part
    s5 = s4 + part
    a0, a1, a2, a3, a4, a5 = U(0), s1, s2, s3, s4, s5
    while True:
        furthest = max(a0, a1 - s1, a2 - s2, a3 - s3, a4 - s4, a5 - s5)
        last = max(p0, p1, p2, p3, p4, p5) >> U(3)
        if last >= limit:
            break
        # As many batches as certainly stay in all parts and in the stream: each takes 7 bytes.
        batches = min((part - furthest) // U(_MOST * _LOOKS), (limit - last) // U(7))
        if batches == U(0):
            break
        for _ in range(batches):
            w0 = _refill(stream, p0)
            w1 = _refill(stream, p1)
            w2 = _refill(stream, p2)
            w3 = _refill(stream, p3)
            w4 = _refill(stream, p4)
            w5 = _refill(stream, p5)
            for _ in range(_LOOKS):
                w0, a0 = _take(table, w0, mask, out, a0)
                w1, a1 = _take(table, w1, mask, out, a1)
                w2, a2 = _take(table, w2, mask, out, a2)
                w3, a3 = _take(table, w3, mask, out, a3)
                w4, a4 = _take(table, w4, mask, out, a4)
                w5, a5 = _take(table, w5, mask, out, a5)
            p0 += leading_zeros(w0)
            p1 += leading_zeros(w1)
            p2 += leading_zeros(w2)
            p3 += leading_zeros(w3)
            p4 += leading_zeros(w4)
            p5 += leading_zeros(w5)
    places = (a0, a1, a2, a3, a4, a5)
    found = (p0, p1, p2, p3, p4, p5)
    for j in range(STREAMS):
        stop = U(j + 1) * part if j < STREAMS - 1 else U(out.size)
        position = _finish(stream, found[j], limit, table, mask, lengths, out, places[j], stop)
        positions[j] = np.int64(position)


@jit
def _take(table, word, mask, out, at):
    """Write the next symbols; return the bits behind their codes, and where the next ones go."""
    entry = table[word & mask]
    store32(out, at, entry)
    return word >> ((entry >> U(32)) & U(63)), at + (entry >> U(56))


@jit
def _finish(stream, position, limit, table, mask, lengths, out, at, stop):
    """Read the rest of a stream's part look by look, without writing behind it."""
    while at < stop:
        byte = min(position >> U(3), limit)
        entry = table[(load64(stream, byte) >> (position & U(7))) & mask]
        number = entry >> U(56)
        if at + U(_MOST) <= stop:
            store32(out, at, entry)
            position += (entry >> U(32)) & U(63)
            at += number
        else:
            for _ in range(min(number, stop - at)):
                symbol = entry & U(255)
                out[at] = symbol
                position += U(lengths[symbol])
                entry >>= U(8)
                at += U(1)
    return position
