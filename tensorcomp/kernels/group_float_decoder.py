"""The way back from what `kernels.group_float_encoder` wrote."""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels import float_side as side
from tensorcomp.kernels.bit_io import copy, get_bits
from tensorcomp.kernels.bitpack import BLOCK, flat_bytes, packed_bytes, packed_size, unpack
from tensorcomp.kernels.byte_symbols import merge
from tensorcomp.kernels.float_decoder import DAMAGED_SIDE, NO_PREFIX_CODE, WRONG_END, WRONG_SIZE
from tensorcomp.kernels.float_side import PADDING
from tensorcomp.kernels.group_float_encoder import BASE_BITS, MANTISSA_BITS, MOST_MANTISSA_BITS
from tensorcomp.kernels.huffman_codes import valid_lengths
from tensorcomp.kernels.huffman_runs import (
    LONGEST,
    STREAMS,
    decode_run,
    fill_entries,
)
from tensorcomp.kernels.jit import jit
from tensorcomp.kernels.scale_groups import find_places

_SYMBOLS = 256


@jit
def decode_rows(data, mantissa, columns, spans, symbols, places):
    """Decode what `encode_rows` gave into `symbols` (L, W) uint8, row r into row places[r].

    data uint8, at least `float_decoder.SHORTEST` of them; `mantissa` bits has a float. columns is
    the words in a row of the array; `symbols` has a line for each row of it, or for each column
    where groups are of columns. Sets `spans` (R, 2) and `places` (L,) int64.
    Returns (the byte where the planes begin, whether rows have spans of their
    own, bits of the mantissa below the symbol, the base of symbols), or what is wrong instead of
    the byte. Nothing is read or written out of bounds, whatever the data.
    """
    rows = symbols.shape[0]
    used = np.empty(STREAMS, np.int64)
    group_of = np.zeros(rows, np.uint8)
    number, longest, apart, at = side.get_head(data)
    low = mantissa - get_bits(data, at, MANTISSA_BITS)
    base = get_bits(data, at + MANTISSA_BITS, BASE_BITS)
    at += MANTISSA_BITS + BASE_BITS
    alphabet, at = side.get_alphabet(data, at, min(_SYMBOLS, symbols.size))
    if number > 1:
        at = side.get_levels(data, at, group_of)
    at = side.get_sizes(data, at, used)
    at = side.get_spans(data, at, spans if apart else spans[:1], low + 1)
    lengths = np.empty((number, alphabet.size), np.uint8)
    at = side.get_lengths(data, at, longest, lengths)
    wrong = low < max(mantissa - MOST_MANTISSA_BITS, 0) or longest == 0 or longest > LONGEST
    if at < 0 or wrong or alphabet[-1] >= _SYMBOLS:
        return np.int64(DAMAGED_SIDE), apart, low, base
    if not valid_lengths(lengths, longest):
        return np.int64(NO_PREFIX_CODE), apart, low, base
    positions = np.empty(STREAMS, np.int64)
    stops = np.empty(STREAMS, np.int64)
    begin = (at + 7) // 8
    for j in range(STREAMS):
        positions[j] = 8 * begin
        stops[j] = positions[j] + used[j]
        begin += (used[j] + 7) // 8
    if apart:
        plane_bytes = packed_bytes(spans, columns)
    else:
        plane_bytes = flat_bytes(symbols.size, np.int64(spans[0, 1]))
    if begin + max(plane_bytes, PADDING) != data.size:
        return np.int64(WRONG_SIZE), apart, low, base
    for r in range(rows):
        group_of[r] = min(np.int64(group_of[r]), number - 1)
    group_rows = find_places(group_of, number, places)
    _decode_groups(data, positions, lengths, longest, alphabet, group_rows, symbols)
    if (positions != stops).any():
        begin = np.int64(WRONG_END)
    return begin, apart, low, base


@jit
def _decode_groups(data, positions, lengths, longest, alphabet, group_rows, symbols):
    """Decode group after group from the bit `positions` on, and move these to where each ends."""
    single = np.empty(1 << longest, np.uint16)
    table = np.empty(1 << longest, np.uint64)
    length_of = np.zeros(_SYMBOLS, np.uint8)
    flat = symbols.reshape(symbols.size)
    begin = 0
    for g in range(group_rows.size):
        stop = begin + group_rows[g] * symbols.shape[1]
        fill_entries(lengths[g : g + 1], longest, alphabet, single, table)
        for a in range(alphabet.size):
            length_of[alphabet[a]] = lengths[g, a]
        decode_run(data, positions, table, longest, length_of, flat[begin:stop])
        begin = stop


@jit
def merge_rows(symbols, places, planes, spans, apart, low, base, part, out):
    """Put grouped `symbols` (R, C) and the packed bits that go with them together in `out` (R, C).

    planes begin with those of the first element; part, of any size, has the dtype of `rest` in
    `byte_symbols.split`.
    """
    if apart:
        _merge_apart(symbols, places, planes, spans, low, base, part, out)
        return
    flat = out.reshape(out.size)
    rest = np.empty(BLOCK, part.dtype)
    high = np.empty(BLOCK, np.uint8)
    plane_bytes = flat_bytes(BLOCK, np.int64(spans[0, 1]))
    columns = out.shape[1]
    r = c = 0
    for begin in range(0, flat.size, BLOCK):
        tile = flat[begin : begin + BLOCK]
        done = 0
        while done < tile.size:
            count = min(columns - c, tile.size - done)
            copy(symbols[places[r], c : c + count], high[done : done + count])
            done += count
            c += count
            if c == columns:
                r += 1
                c = 0
        below = rest[: tile.size]
        unpack(planes[begin // BLOCK * plane_bytes :], spans, below.reshape(1, tile.size))
        merge(high, below, low, base, tile)


@jit
def _merge_apart(symbols, places, planes, spans, low, base, part, out):
    """Merge rows with spans of their own, as many at once as stay in the nearest cache."""
    columns = out.shape[1]
    together = max(BLOCK // columns, 1)
    rest = np.empty((together, columns), part.dtype)
    position = 0
    for first in range(0, out.shape[0], together):
        some = spans[first : first + together]
        unpack(planes[position:], some, rest[: some.shape[0]])
        for i in range(some.shape[0]):
            r = first + i
            merge(symbols[places[r]], rest[i], low, base, out[r])
            position += packed_size(columns, np.int64(spans[r, 1]))
