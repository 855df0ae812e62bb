"""Gaps between indices: a Huffman code for the gap's magnitude, then its low bits as they are.

A gap below 4 is its own class. Any other has a class of its highest bit and the two bits below it;
the bits below those follow the code. A stream is read one gap after the other, from 64-bit words.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bits import U, leading_zeros, load64, store64
from tensorcomp.kernels.jit import jit

LONGEST = 12  # bits of a code
GAP_BITS = 44  # bits of a gap: with its code and a bit offset it fits a word
CLASSES = 4 * (GAP_BITS - 1)


@jit
def _class(gap):
    if gap < U(4):
        return gap
    top = U(63) - U(leading_zeros(gap))
    return ((top - U(1)) << U(2)) | ((gap >> (top - U(2))) & U(3))


@jit
def _low_bits(kind):
    return (kind >> U(2)) - U(1) if kind >= U(4) else U(0)


@jit
def _least(kind):
    return (U(4) | (kind & U(3))) << _low_bits(kind) if kind >= U(4) else kind


@jit
def count_classes(positions, counts):
    """Count the classes of the gaps of ascending `positions` (k,) uint64 into `counts` (CLASSES,).

    The first gap is the first position. Returns whether all gaps are below 2**GAP_BITS.
    """
    following = U(0)
    for i in range(positions.size):
        kind = _class(positions[i] - following)
        if kind >= U(counts.size):
            return False
        counts[kind] += 1
        following = positions[i] + U(1)
    return True


@jit
def stream_bits(counts, lengths):
    """Return the bits of all gaps, of the classes' counts (A,) and code lengths (A,)."""
    total = np.int64(0)
    for kind in range(counts.size):
        total += counts[kind] * (np.int64(lengths[kind]) + np.int64(_low_bits(U(kind))))
    return total


@jit
def encode(positions, codes, out):
    """Write the gaps of `positions` to `out`, zero-filled or not, with 8 bytes of room at its end.

    codes as `kernels.huffman.fill_codes` makes them for one context: code << 8 | length.
    """
    following = U(0)
    word, used, at = U(0), U(0), U(0)
    for i in range(positions.size):
        gap = positions[i] - following
        following = positions[i] + U(1)
        kind = _class(gap)
        entry = U(codes[kind])
        length = entry & U(255)
        value = (entry >> U(8)) | ((gap - _least(kind)) << length)
        word |= value << used
        used += length + _low_bits(kind)
        store64(out, np.int64(at), word)
        whole = used >> U(3)
        at += whole
        word >>= whole << U(3)
        used &= U(7)


@jit
def fill_table(codes, table):
    """Set table[bits] (2**LONGEST,) uint32 to what the code at the start of `bits` stands for.

    From the low bits: the class (8), the code's length (8), the length with the gap's low bits.
    Bits that no code starts with stand for class 0 of no bits.
    """
    table[:] = 0
    for kind in range(codes.size):
        length = np.int64(codes[kind]) & 255
        if length:
            advance = length + np.int64(_low_bits(U(kind)))
            entry = (advance << 16) | (length << 8) | kind
            for bits in range(np.int64(codes[kind]) >> 8, table.size, 1 << length):
                table[bits] = entry


@jit
def _next(stream, position, table):
    """Return the gap at a bit position of a stream with 8 bytes of padding, and the next one."""
    last = U(stream.size - 8)
    bits = load64(stream, np.int64(min(position >> U(3), last))) >> (position & U(7))
    entry = U(table[bits & U(table.size - 1)])
    kind = entry & U(255)
    low = (U(1) << _low_bits(kind)) - U(1)
    return _least(kind) + ((bits >> ((entry >> U(8)) & U(255))) & low), position + (entry >> U(16))


@jit
def decode_mask(stream, table, count, value, mask):
    """Set `count` elements of `mask` (n,) uint8 to `value`.

    Returns the bits read, or -1 if an index is beyond the mask.
    """
    at, position = U(0), U(0)
    n = U(mask.size)
    for _ in range(count):
        gap, position = _next(stream, position, table)
        at += gap
        if at >= n:
            return -1
        mask[at] = value
        at += U(1)
    return np.int64(position)


@jit
def decode_positions(stream, table, most, positions):
    """Set `positions` (k,) uint64; return the bits read, -1 if a position is beyond `most`."""
    at, position = U(0), U(0)
    for i in range(positions.size):
        gap, position = _next(stream, position, table)
        if at > most or gap > most - at:
            return -1
        at += gap
        positions[i] = at
        at += U(1)
    return np.int64(position)
