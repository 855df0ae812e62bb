"""A chunk of floats coded, and decoded, in one call each.

Threads that code chunks side by side then wait once a chunk for the interpreter's lock.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bitpack import pack_array
from tensorcomp.kernels.byte_symbols import look_at_rows, split
from tensorcomp.kernels.group_float_decoder import decode_rows, merge_rows
from tensorcomp.kernels.group_float_encoder import encode_rows, plan_rows
from tensorcomp.kernels.jit import jit
from tensorcomp.kernels.scale_groups import gather_columns, scatter_columns


@jit
def encode_chunk(words, part, mantissa, wanted, groups, by_columns, told_apart):
    """Return (coded symbols with the side information, planes) of `words` (R, C).

    part, of any size, has the dtype of all bits that may be below a symbol; `mantissa` bits has a
    float, of which `wanted` are coded. groups is how many there may be. Rows may be `told_apart`
    by the bits that they use. The first array is empty where coding saves nothing.
    """
    rows, columns = words.shape
    sums = np.empty(rows, np.int64)
    group_of = np.empty(rows, np.uint8)
    places = np.empty(rows, np.int64)
    extremes = look_at_rows(words, sums)
    bits, base, sizes = plan_rows(
        extremes, sums, columns, mantissa - wanted, wanted,
        1 if by_columns else groups, group_of, places,
    )  # fmt: skip
    symbols = np.empty(words.shape, np.uint8)
    rest = np.empty(words.shape, part.dtype)
    split(words, places, mantissa - bits, base, symbols, rest)
    spans, planes = pack_array(rest, told_apart)
    if by_columns:
        group_of = np.empty(columns, np.uint8)
        places = np.empty(columns, np.int64)
        symbols, sizes = gather_columns(symbols, groups, group_of, places)
    most = words.size * words.itemsize - planes.size
    return encode_rows(symbols, group_of, places, sizes, bits, base, spans, most), planes


@jit
def decode_chunk(data, part, mantissa, by_columns, words):
    """Decode into `words` (R, C); return 0, or what is wrong (see `float_decoder.WRONG`).

    data uint8, at least `float_decoder.SHORTEST` of them: what `encode_chunk` gave, and zeros
    behind fewer than 8 bytes of planes.
    """
    rows, columns = words.shape
    lines = columns if by_columns else rows
    symbols = np.empty((lines, words.size // lines), np.uint8)
    spans = np.empty((rows, 2), np.uint8)
    places = np.empty(lines, np.int64)
    begin, apart, low, base = decode_rows(data, mantissa, columns, spans, symbols, places)
    if begin < 0:
        return begin
    if by_columns:
        symbols = scatter_columns(symbols, places)
        places = np.arange(rows)
    merge_rows(symbols, places, data[begin:], spans, apart, low, base, part, words)
    return np.int64(0)
