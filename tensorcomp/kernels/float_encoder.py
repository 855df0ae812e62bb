"""Symbols of floats coded by Huffman codes in contexts of row and column scale, one call a chunk.

It holds no lock and needs nothing of Python on its way. The bytes are side information (see
`kernels.float_side`) and eight bit streams as `kernels.huffman` writes them, each from a whole byte
on.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels import float_side as side
from tensorcomp.kernels.bit_io import bit_length
from tensorcomp.kernels.contexts import (
    fill_steps,
    find_levels,
    find_sums,
    histogram,
    level_patterns,
)
from tensorcomp.kernels.float_side import LEVELS, SUMS
from tensorcomp.kernels.huffman import count_symbols, encode_streams, spread_codes
from tensorcomp.kernels.huffman_codes import NARROW, cheapest_lengths, coded_bits, longest_for
from tensorcomp.kernels.jit import jit

_LEVEL_BITS = 3  # what the level of a row or column costs, about
_TILE = 1 << 13  # elements handled together, so that they stay in the nearest cache


@jit
def encode_symbols(symbols, contexts, width, columns, spans, most):
    """Return the bytes of `symbols` (R, C) uint16, which are overwritten.

    contexts is how many there may be, a power of two. columns (C,) uint8 and `width` are the levels
    that chunks share, or (0,) and 0. spans (R or 1, 2) are those of the planes that will follow,
    kept with the side information. Nothing is returned where that takes more than `most` bytes, or
    symbols are too many for a code.
    """
    rows, row = symbols.shape
    flat = symbols.reshape(symbols.size)
    least, greatest = _range(flat)
    bits = max(bit_length(np.int64(greatest) - np.int64(least)), 1)
    contexts = min(contexts, 1 << (16 - bits))
    row_levels = np.empty(rows, np.uint8)
    column_levels = np.empty(row, np.uint8)
    context_of = np.zeros(SUMS, np.uint8)
    lowest, span = 0, 1
    if contexts > 1:
        column_levels[: columns.size] = columns
        find_levels(symbols, False, LEVELS, width, row_levels, column_levels)
        lowest, span = find_sums(row_levels, column_levels, LEVELS)
        fill_steps(lowest, span, contexts, context_of)
    counters = np.zeros((2, contexts << bits), np.uint32)
    _to_indices(flat, least, bits, row_levels, column_levels, context_of, contexts, counters)
    alphabet, counts = count_symbols(counters, contexts, bits)
    if alphabet.size > NARROW:
        return np.empty(0, np.uint8)
    longest = longest_for(alphabet.size, contexts)
    own = columns.size == 0
    levels = rows + row if own else rows
    lengths = cheapest_lengths(counts, longest, _LEVEL_BITS * levels)
    number = lengths.shape[0]
    if coded_bits(counts, lengths) // 8 > most:
        return np.empty(0, np.uint8)
    codes = spread_codes(lengths, longest, alphabet, contexts, bits)
    streams, starts, used = encode_streams(flat, codes, longest)

    size = side.most_bytes(rows, row, lengths.size, alphabet.size, spans.shape[0])
    head = np.zeros(size, np.uint8)
    at = side.put_head(head, number, longest, spans.shape[0] > 1)
    at = side.put_alphabet(head, at, alphabet, least)
    if number > 1:
        at = side.put_contexts(head, at, lowest, span, contexts, row_levels)
        if own:
            at = side.put_levels(head, at, column_levels)
    at = side.put_sizes(head, at, used)
    at = side.put_spans(head, at, spans)
    at = side.put_lengths(head, at, lengths)
    return side.with_streams(head, at, streams, starts, used)


@jit
def _range(symbols):
    least = most = symbols[0]
    for i in range(symbols.size):
        least = min(least, symbols[i])
        most = max(most, symbols[i])
    return least, most


@jit
def _to_indices(symbols, least, bits, row_levels, column_levels, context_of, contexts, counters):
    """Turn symbols (R × C,) into context << bits | symbol - least, and count them."""
    if contexts == 1:
        for begin in range(0, symbols.size, _TILE):
            tile = symbols[begin : begin + _TILE]
            for i in range(tile.size):
                tile[i] -= least
            histogram(tile, counters)
        return
    value_of = context_of.astype(np.uint16) << np.uint16(bits)
    slots, patterns = level_patterns(row_levels, column_levels, LEVELS, value_of)
    columns = column_levels.size
    together = max(_TILE // columns, 1)
    for first in range(0, row_levels.size, together):
        stop = min(first + together, row_levels.size)
        for r in range(first, stop):
            pattern = patterns[slots[row_levels[r]]]
            row = symbols[r * columns : (r + 1) * columns]
            for c in range(columns):
                row[c] = pattern[c] + (row[c] - least)
        histogram(symbols[first * columns : stop * columns], counters)
