"""The way back from what `kernels.float_encoder` wrote, one call a chunk as well."""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels import float_side as side
from tensorcomp.kernels.bitpack import BLOCK, flat_bytes, packed_bytes, unpack
from tensorcomp.kernels.contexts import level_patterns
from tensorcomp.kernels.fields import merge
from tensorcomp.kernels.float_side import LEVELS, PADDING, SUMS
from tensorcomp.kernels.huffman import STREAMS, decode
from tensorcomp.kernels.huffman_codes import LONGEST, NARROW, fill_table, valid_lengths
from tensorcomp.kernels.jit import jit

SHORTEST = 8  # bytes of any chunk
DAMAGED_SIDE, NO_PREFIX_CODE, WRONG_SIZE, WRONG_END = -1, -2, -3, -4
WRONG = {
    DAMAGED_SIDE: "the side information is damaged",
    NO_PREFIX_CODE: "the code lengths make no prefix code",
    WRONG_SIZE: "its streams and planes have other sizes than its bytes",
    WRONG_END: "a stream does not end where it should",
}


@jit
def decode_symbols(data, columns, most, spans, symbols):
    """Decode what `encode_symbols` gave into `symbols` (R, C) uint16, and set `spans` (R, 2).

    data uint8, at least `SHORTEST` of them; columns as for `encode_symbols`; `most` bits have the
    planes that follow. Returns (the byte where these begin, whether rows have spans of their own),
    or what is wrong instead of the byte. Nothing is read or written out of bounds, whatever the
    data.
    """
    rows, row = symbols.shape
    row_levels = np.empty(rows, np.uint8)
    column_levels = np.empty(row, np.uint8)
    context_of = np.zeros(SUMS, np.uint8)
    used = np.empty(STREAMS, np.int64)
    number, longest, apart, at = side.get_head(data)
    alphabet, at = side.get_alphabet(data, at, min(NARROW, symbols.size))
    at = side.get_contexts(data, at, number, context_of, row_levels, columns, column_levels)
    at = side.get_sizes(data, at, used)
    at = side.get_spans(data, at, spans if apart else spans[:1], most)
    lengths = np.empty((number, alphabet.size), np.uint8)
    at = side.get_lengths(data, at, longest, lengths)
    starts = np.empty(STREAMS + 1, np.int64)
    if at < 0 or longest == 0 or longest > LONGEST or number << longest > 1 << 16:
        position = np.int64(DAMAGED_SIDE)
    elif not valid_lengths(lengths, longest):
        position = np.int64(NO_PREFIX_CODE)
    else:
        if apart:
            plane_bytes = packed_bytes(spans, row)
        else:
            plane_bytes = flat_bytes(symbols.size, np.int64(spans[0, 1]))
        starts = _starts((at + 7) // 8, used)
        fits = starts[STREAMS] + plane_bytes + max(0, PADDING - plane_bytes) == data.size
        position = starts[STREAMS] if fits else np.int64(WRONG_SIZE)
    if position >= 0:
        value_of = np.empty(SUMS, np.uint16)
        for i in range(SUMS):
            value_of[i] = np.uint16(context_of[i]) << np.uint16(longest)
        positions = 8 * starts[:STREAMS]
        stops = positions + used
        _decode_streams(
            data, positions, lengths, longest, alphabet, row_levels, column_levels, value_of,
            symbols.reshape(symbols.size),
        )  # fmt: skip
        if (positions != stops).any():
            position = np.int64(WRONG_END)
    return position, apart


@jit
def _starts(begin, used):
    """Return the byte where each stream of so many bits starts, and where the last one ends."""
    starts = np.empty(used.size + 1, np.int64)
    starts[0] = begin
    for j in range(used.size):
        starts[j + 1] = starts[j] + (used[j] + 7) // 8
    return starts


@jit
def _decode_streams(
    data, positions, lengths, longest, alphabet, row_levels, column_levels, value_of, out
):
    """Decode the streams from the bit `positions` on, and move these to where each ends."""
    table = np.empty(lengths.shape[0] << longest, np.uint16)
    values = np.empty(alphabet.size, np.uint16)
    for a in range(values.size):  # the table gives places in the alphabet, if that is too wide
        values[a] = a if alphabet[-1] >= NARROW else alphabet[a]
    fill_table(lengths, longest, values, table)
    if lengths.shape[0] > 1:
        _decode_rows(data, positions, table, longest, row_levels, column_levels, value_of, out)
    else:
        decode(data, positions, table, longest, None, out)
    if alphabet[-1] >= NARROW:
        for i in range(out.size):
            out[i] = alphabet[out[i]]


@jit
def _decode_rows(data, positions, table, longest, row_levels, column_levels, value_of, out):
    """Decode with contexts, `BLOCK` elements at a time: their contexts stay in near caches."""
    bases = np.empty(BLOCK, np.uint16)
    slots, patterns = level_patterns(row_levels, column_levels, LEVELS, value_of)
    columns = column_levels.size
    r = 0
    c = 0
    for begin in range(0, out.size, BLOCK):
        tile = out[begin : begin + BLOCK]
        done = 0
        while done < tile.size:
            count = min(columns - c, tile.size - done)
            pattern = patterns[slots[row_levels[r]], c : c + count]
            run = bases[done : done + count]
            for i in range(count):
                run[i] = pattern[i]
            done += count
            c += count
            if c == columns:
                r += 1
                c = 0
        decode(data, positions, table, longest, bases[: tile.size], tile)


@jit
def merge_planes(symbols, planes, spans, apart, low, part, out):
    """Put `symbols` (R, C) and the packed bits that go with them together in `out` (R, C).

    planes begin with those of the first element; part, of any size, has the dtype of `rest` in
    `fields.split`.
    """
    flat = out.reshape(out.size)
    high = symbols.reshape(out.size)
    rest = np.empty(out.shape if apart else (1, BLOCK), part.dtype)
    all_rest = rest.reshape(rest.size)
    if apart:
        unpack(planes, spans, rest)
        merge(high, all_rest, low, flat)
        return
    plane_bytes = flat_bytes(BLOCK, np.int64(spans[0, 1]))
    for begin in range(0, flat.size, BLOCK):
        tile = flat[begin : begin + BLOCK]
        below = all_rest[: tile.size]
        unpack(planes[begin // BLOCK * plane_bytes :], spans, below.reshape(1, tile.size))
        merge(high[begin : begin + tile.size], below, low, tile)
