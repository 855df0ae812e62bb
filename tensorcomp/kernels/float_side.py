"""The side information of a chunk of floats, as one stream of bits (see `kernels.bit_io`).

In order: contexts and longest code; the alphabet; where there are contexts, their steps, the levels
of rows and (unless chunks share them) columns; the bits of each stream; which bits of the mantissas
are stored; from a whole byte on, the code lengths.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bit_io import bit_length, copy, get_bits, get_gamma, put_bits, put_gamma
from tensorcomp.kernels.contexts import fill_steps
from tensorcomp.kernels.frequencies import LONGEST_CODE, pack, unpack
from tensorcomp.kernels.huffman_codes import (
    LENGTH_BITS,
    code_lengths,
    fill_codes,
    fill_table,
    valid_lengths,
)
from tensorcomp.kernels.jit import jit

LEVELS = 16
SUMS = 2 * LEVELS - 1
PADDING = 8  # bytes behind the last stream, planes or zeros
_LONGEST_LEVEL = 7  # bits of a level's code
_SPAN_BITS = 7
_SPARE = 16


@jit
def most_bytes(rows, columns, lengths, symbols, spans):
    """Return more bytes than the side information of such a chunk can have."""
    gammas = 8 * (symbols + 2 * spans)
    return 128 + rows + columns + lengths * LONGEST_CODE // 8 + gammas + _SPARE


@jit
def put_head(out, contexts, longest, apart):
    """Put the number of contexts, the longest code, and whether rows have spans of their own."""
    at = put_bits(out, np.int64(0), bit_length(contexts) - 1, 3)
    at = put_bits(out, at, longest, 4)
    return put_bits(out, at, 1 if apart else 0, 1)


@jit
def get_head(data):
    """Return (contexts, longest, apart, position)."""
    contexts = np.int64(1) << get_bits(data, np.int64(0), 3)
    longest = get_bits(data, np.int64(3), 4)
    return contexts, longest, get_bits(data, np.int64(7), 1) == 1, np.int64(8)


@jit
def put_alphabet(out, at, alphabet, least):
    """Put the ascending symbols (A,), to each of which `least` is added: the first, then gaps."""
    at = put_bits(out, at, np.int64(least) + np.int64(alphabet[0]), 16)
    at = put_gamma(out, at, np.int64(alphabet.size))
    for a in range(1, alphabet.size):
        at = put_gamma(out, at, np.int64(alphabet[a]) - np.int64(alphabet[a - 1]))
    return at


@jit
def get_alphabet(data, at, most):
    """Return the symbols, (A,) uint16, A at most `most`, and the position, or -1."""
    symbol = get_bits(data, at, 16)
    size, at = get_gamma(data, at + 16)
    symbols = np.zeros(min(size, most), np.uint16)
    for a in range(symbols.size):
        if a > 0:
            gap, at = get_gamma(data, at)
            symbol += gap
        symbols[a] = min(symbol, (1 << 16) - 1)
    return symbols, at if size <= most and symbol < 1 << 16 else np.int64(-1)


@jit
def put_contexts(out, at, lowest, span, contexts, row_levels):
    """Put which sums of levels fall in which of `contexts` steps, and the rows' levels."""
    at = put_bits(out, at, lowest, 5)
    at = put_bits(out, at, span, 5)
    at = put_bits(out, at, bit_length(contexts) - 1, 3)
    return put_levels(out, at, row_levels)


@jit
def get_contexts(data, at, number, context_of, row_levels, columns, column_levels):
    """Set `context_of`, in `number` contexts, and the levels; return the position, or -1.

    columns are the levels of columns that chunks share; where there are none, the chunk has them.
    """
    if at < 0 or number == 1:
        return at
    lowest = get_bits(data, at, 5)
    span = max(get_bits(data, at + 5, 5), 1)
    contexts = np.int64(1) << get_bits(data, at + 10, 3)
    fill_steps(lowest, span, contexts, context_of)
    for i in range(context_of.size):
        context_of[i] = min(context_of[i] // max(contexts // number, 1), number - 1)
    at = get_levels(data, at + 13, row_levels)
    if columns.size == 0:
        return get_levels(data, at, column_levels)
    for c in range(columns.size):
        column_levels[c] = columns[c]
    return at


@jit
def put_levels(out, at, levels):
    """Put levels below 16 by a Huffman code of their own: 16 code lengths of 3 bits, the codes."""
    counts = np.zeros((1, LEVELS), np.int64)
    for i in range(levels.size):
        counts[0, levels[i]] += 1
    lengths = np.empty((1, LEVELS), np.uint8)
    code_lengths(counts, _LONGEST_LEVEL, lengths)
    codes = np.zeros(LEVELS, np.uint32)
    fill_codes(lengths, _LONGEST_LEVEL, np.arange(LEVELS).astype(np.uint16), 0, codes)
    for level in range(LEVELS):
        at = put_bits(out, at, np.int64(lengths[0, level]), 3)
    for i in range(levels.size):
        code = np.int64(codes[levels[i]])
        at = put_bits(out, at, code >> 8, code & 0xFF)
    return at


@jit
def get_levels(data, at, levels):
    """Set `levels`; return the position, or -1 if their code is damaged."""
    if at < 0:
        return at
    lengths = np.empty((1, LEVELS), np.uint8)
    for level in range(LEVELS):
        lengths[0, level] = get_bits(data, at, 3)
        at += 3
    if not valid_lengths(lengths, _LONGEST_LEVEL):
        return np.int64(-1)
    table = np.empty(1 << _LONGEST_LEVEL, np.uint16)
    fill_table(lengths, _LONGEST_LEVEL, np.arange(LEVELS).astype(np.uint16), table)
    for i in range(levels.size):
        entry = np.int64(table[get_bits(data, at, _LONGEST_LEVEL)])
        levels[i] = entry >> LENGTH_BITS
        at += entry & 63
    return at


@jit
def put_sizes(out, at, sizes):
    """Put numbers of bits, below 2**31: the least, then how much more each one is."""
    least = sizes.min()
    width = bit_length(least)
    at = put_bits(out, at, width, 5)
    at = put_bits(out, at, least, width)
    width = bit_length(sizes.max() - least)
    at = put_bits(out, at, width, 5)
    for size in sizes:
        at = put_bits(out, at, size - least, width)
    return at


@jit
def get_sizes(data, at, sizes):
    """Set `sizes`; return the position."""
    if at < 0:
        return at
    width = get_bits(data, at, 5)
    least = get_bits(data, at + 5, width)
    at += 5 + width
    width = get_bits(data, at, 5)
    at += 5
    for j in range(sizes.size):
        sizes[j] = least + get_bits(data, at, width)
        at += width
    return at


@jit
def put_spans(out, at, spans):
    """Put the (shift, width) of all planes, (1, 2), or of runs of rows (R, 2) that share it."""
    if spans.shape[0] == 1:
        at = put_bits(out, at, np.int64(spans[0, 0]), _SPAN_BITS)
        return put_bits(out, at, np.int64(spans[0, 1]), _SPAN_BITS)
    begin = 0
    for r in range(1, spans.shape[0] + 1):
        if r == spans.shape[0] or spans[r, 0] != spans[begin, 0] or spans[r, 1] != spans[begin, 1]:
            at = put_gamma(out, at, np.int64(r - begin))
            at = put_bits(out, at, np.int64(spans[begin, 0]), _SPAN_BITS)
            at = put_bits(out, at, np.int64(spans[begin, 1]), _SPAN_BITS)
            begin = r
    return at


@jit
def get_spans(data, at, spans, most):
    """Set `spans` (1, 2) or (R, 2); return the position, or -1 if one has more than `most` bits."""
    done = 0
    while at >= 0 and done < spans.shape[0]:
        count = np.int64(1)
        if spans.shape[0] > 1:
            count, at = get_gamma(data, at)
        shift = get_bits(data, at, _SPAN_BITS)
        width = get_bits(data, at + _SPAN_BITS, _SPAN_BITS)
        at += 2 * _SPAN_BITS
        if shift + width > most or count > spans.shape[0] - done:
            return np.int64(-1)
        for r in range(done, done + count):
            spans[r, 0] = shift
            spans[r, 1] = width
        done += count
    return at


@jit
def put_lengths(out, at, lengths):
    """Put code lengths (K, A) from the next whole byte on; return the position behind them."""
    begin = (at + 7) // 8
    return 8 * begin + pack(lengths.astype(np.int64), out[begin:])


@jit
def get_lengths(data, at, longest, lengths):
    """Set `lengths`; return the position, or -1 if one is longer than `longest`."""
    begin = (at + 7) // 8
    if at < 0 or begin + 8 >= data.size:
        return np.int64(-1)
    table = np.empty(lengths.shape, np.int64)
    bits = unpack(data[begin:], longest, table)
    if bits < 0:
        return np.int64(-1)
    for k in range(lengths.shape[0]):
        for a in range(lengths.shape[1]):
            lengths[k, a] = table[k, a]
    return 8 * begin + bits


@jit
def with_streams(head, at, streams, starts, used):
    """Return the first `at` bits of the side information, then each stream from a whole byte on.

    Stream j has used[j] bits from the byte starts[j] of `streams` on.
    """
    size = (at + 7) // 8
    out = np.empty(size + ((used + 7) // 8).sum(), np.uint8)
    copy(head[:size], out)
    for j in range(used.size):
        count = (used[j] + 7) // 8
        copy(streams[starts[j] : starts[j] + count], out[size : size + count])
        size += count
    return out
