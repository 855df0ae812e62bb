"""Symbols of floats coded by Huffman codes of groups of rows, one call a chunk.

It holds no lock and needs nothing of Python on its way. The bytes are side information and six bit
streams as `kernels.huffman_runs` writes them, each from a whole byte on.

The side information is one stream of bits (see `kernels.bit_io`), in order: how many groups, the
longest code, whether rows have spans of their own, mantissa bits of a symbol, the base of symbols
(see `kernels.byte_symbols`); the alphabet; where there are groups, each row's; the bits of each
stream; which bits of the rest are stored; from a whole byte on, the code lengths.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels import float_side as side
from tensorcomp.kernels.bit_io import bit_length, copy, put_bits
from tensorcomp.kernels.bits import U
from tensorcomp.kernels.byte_symbols import choose_cut
from tensorcomp.kernels.huffman_codes import cheapest_lengths, coded_bits, fill_codes
from tensorcomp.kernels.huffman_runs import LONGEST, STREAMS, count_run, encode_run, room_of
from tensorcomp.kernels.jit import jit, quick
from tensorcomp.kernels.scale_groups import find_groups, find_places

MANTISSA_BITS, BASE_BITS = 3, 16  # of the fields of the side information
MOST_MANTISSA_BITS = 4
_GROUP_BITS = 2  # what the group of a row costs, about


@jit
def plan_rows(extremes, sums, columns, low, mantissa_bits, groups, group_of, places):
    """Return (mantissa bits, base, rows of each group), and set each row's group and place.

    extremes, and sums (R,) int64 of `columns` words each, as `byte_symbols.look_at_rows` gives
    them; mantissa_bits are wanted, and with them `low` bits are below the symbol. groups is how
    many there may be, a power of two up to 8. group_of (R,) uint8 and places (R,) int64.
    """
    bits, base = choose_cut(extremes[0], extremes[1], low, mantissa_bits)
    find_groups(sums, columns, groups, group_of)
    return bits, base, find_places(group_of, groups, places)


@jit
def encode_rows(symbols, group_of, places, group_rows, mantissa_bits, base, spans, most):
    """Return the bytes of `symbols` (R, C) uint8, in the groups that `plan_rows` found.

    spans (R or 1, 2) are those of the planes that will follow, kept with the side information like
    mantissa_bits and base. Nothing is returned where that takes more than `most` bytes.
    """
    rows = group_of.size
    groups = group_rows.size
    alphabet, counts = _count(symbols, group_rows)
    longest = _longest_for(alphabet.size, symbols.size // groups)
    lengths = cheapest_lengths(counts, longest, _GROUP_BITS * rows)
    if coded_bits(counts, lengths) // 8 > most:
        return np.empty(0, np.uint8)
    number = lengths.shape[0]
    if number < groups:
        symbols, group_of, group_rows = _join(symbols, group_of, places, groups, number)
    streams, starts, used = _encode_groups(symbols, group_rows, lengths, longest, alphabet)

    size = side.most_bytes(rows, 0, lengths.size, alphabet.size, spans.shape[0])
    head = np.zeros(size, np.uint8)
    at = side.put_head(head, number, longest, spans.shape[0] > 1)
    at = put_bits(head, at, mantissa_bits, MANTISSA_BITS)
    at = put_bits(head, at, base, BASE_BITS)
    at = side.put_alphabet(head, at, alphabet, 0)
    if number > 1:
        at = side.put_levels(head, at, group_of)
    at = side.put_sizes(head, at, used)
    at = side.put_spans(head, at, spans)
    at = side.put_lengths(head, at, lengths)
    return side.with_streams(head, at, streams, starts, used)


@jit
def _join(symbols, group_of, places, groups, number):
    """Join neighbouring groups, so that there are `number`; return symbols, rows' groups, sizes."""
    joined = group_of // np.uint8(groups // number)
    moved = np.empty(group_of.size, np.int64)
    group_rows = find_places(joined, number, moved)
    together = np.empty_like(symbols)
    for r in range(group_of.size):
        copy(symbols[places[r]], together[moved[r]])
    return together, joined, group_rows


@jit
def _count(symbols, group_rows):
    """Return the symbols that occur, (A,) uint16, and their counts (groups, A) int64."""
    flat = symbols.reshape(symbols.size)
    groups = group_rows.size
    counts = np.zeros((groups, 256), np.int64)
    largest = np.int64(flat.max())
    begin = np.int64(0)
    for g in range(groups):
        stop = begin + group_rows[g] * symbols.shape[1]
        count_run(flat[begin:stop], largest + 1, counts[g])
        begin = stop
    alphabet = np.empty(256, np.uint16)
    found = 0
    for symbol in range(256):
        if counts[:, symbol].max() > 0:
            alphabet[found] = symbol
            for g in range(groups):
                counts[g, found] = counts[g, symbol]
            found += 1
    return alphabet[:found].copy(), counts[:, :found].copy()


@quick
def _longest_for(alphabet, elements):
    """Return how long codes may be: shorter for a few elements, since tables take time as well."""
    wanted = bit_length(np.int64(elements)) - 3
    return np.int64(min(max(wanted, bit_length(np.int64(alphabet)) + 2), LONGEST))


@jit
def _encode_groups(symbols, group_rows, lengths, longest, alphabet):
    """Return a buffer with six streams, where each starts, and the bits of each."""
    row = symbols.shape[1]
    room = room_of(group_rows * row, longest)
    streams = np.empty(STREAMS * room, np.uint8)
    starts = room * np.arange(STREAMS)
    positions = starts.astype(np.uint64)
    words = np.zeros(STREAMS, np.uint64)
    used = np.zeros(STREAMS, np.uint64)
    codes = np.empty(np.int64(alphabet[-1]) + 1, np.uint32)
    flat = symbols.reshape(symbols.size)
    begin = 0
    for g in range(group_rows.size):
        stop = begin + group_rows[g] * row
        codes[:] = 0
        fill_codes(lengths[g : g + 1], longest, alphabet, 0, codes)
        encode_run(flat[begin:stop], codes, streams, positions, words, used)
        begin = stop
    bits = np.empty(STREAMS, np.int64)
    for j in range(STREAMS):
        bits[j] = np.int64((positions[j] << U(3)) + used[j]) - 8 * starts[j]
    return streams, starts, bits
