"""Kernels in C. Arrays are contiguous; table.h has the type and shape of each argument."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

cpu_level: int
"""Which level of the processor's instructions is used: 1, or 3 for x86-64-v3."""

# bitpack.c

def bitpack_pack(
    words: Array, told_apart: bool, spans: Array, planes: Array, sizes: Array, /
) -> int:
    """Pack `words` (R, C): rows by spans of their own where they may be told apart and that pays.

    spans (R, 2) are set to each row's (shift, width), or its first row to that of all. planes has
    room for the words and 16 bytes. Sizes are set to (rows of spans, bytes of planes).
    """

def bitpack_unpack(planes: Array, spans: Array, words: Array, /) -> int:
    """Undo `bitpack_pack` into `words` (R, C) with `spans` (1 or R, 2).

    Returns how many bytes the planes should have: words are only set if they do. Returns -1 if a
    span has more bits than a word.
    """

def bitpack_flat_bytes(size: int, width: int, /) -> int:
    """Return the bytes of so many words packed with one width."""

def bitpack_pack_low(values: Array, width: int, planes: Array, /) -> int:
    """Pack the low bits, at most 8, of `values` (n,) uint8; planes has `bitpack_flat_bytes`."""

def sum_magnitudes(values: Array, /) -> int:
    """Return the sum of the magnitudes of signed integers (n,)."""

# contexts.c

def contexts_find(
    matrix: Array,
    has_signs: bool,
    width: int,
    contexts: int,
    row_levels: Array,
    column_levels: Array,
    context_of: Array | None,
    /,
) -> int:
    """Set the levels of rows and columns of a matrix (R, C), and return the width of a level.

    matrix has elements of 1 or 2 bytes; those that have signs get levels by log2 of the mean
    magnitude, others by their mean. With a `width` above 0, it and the columns' levels are given.
    context_of (31,) uint8 is set to which of so many contexts each sum of two levels has.
    """

def contexts_fill(
    row_levels: Array,
    column_levels: Array,
    context_of: Array,
    shift: int,
    symbols: Array | None,
    out: Array,
    /,
) -> int:
    """Set out (R, C) uint16 to each element's context << shift, with its symbol in the low bits.

    Levels below 16, (R,) and (C,) uint8; context_of (31,) uint8; symbols (R, C) of 1 or 2 bytes.
    """

def contexts_count(words: Array, counts: Array, /) -> int:
    """Set counts (S,) int64 to how often each word occurs: (n,) of 1 or 2 bytes, below S."""

# huffman.c

def huffman_encode(
    symbols: Array,
    row_levels: Array | None,
    column_levels: Array | None,
    context_of: Array | None,
    bits: int,
    contexts: int,
    level_bits: int,
    lengths: Array,
    alphabet: Array,
    numbers: Array,
    streams: Array,
    /,
) -> int:
    """Encode symbols (R, C) below 2**bits in the number of contexts that costs least.

    Symbols have 1 or 2 bytes, those of 1 have 8 bits; contexts as for `contexts_fill`, or None for
    a single one; level_bits is what more than one context needs besides. Set are code lengths
    (K, A) uint8 and symbols (A,) uint16, each at the front of its array, and numbers (11,) int64:
    K, A, the longest code allowed, the bits of each of eight streams. K is 0 if there are too many
    symbols. Returns the bytes of the streams, each from a whole byte on. These have room for eight
    times (n // 8 + 1) * 14 // 8 + 9 bytes.
    """

def huffman_decode(
    stream: Array,
    positions: Array,
    lengths: Array,
    longest: int,
    alphabet: Array,
    row_levels: Array | None,
    column_levels: Array | None,
    context_of: Array | None,
    out: Array,
    /,
) -> int:
    """Decode symbols (R, C) of 1 or 2 bytes; lengths (K, A), alphabet and levels as encoded.

    positions (8,) int64 are the bits where streams start, and are moved to where they end; stream
    has 8 bytes behind the last code. Returns 0, or -2 if the lengths make no prefix code.
    """

# groupfloats.c

def groupfloats_encode(
    words: Array,
    mantissa: int,
    mantissa_bits: int,
    groups: int,
    by_columns: bool,
    told_apart: bool,
    out: Array,
    sizes: Array,
    /,
) -> int:
    """Encode `words` (R, C) of floats with so many bits of mantissa, of which some are coded.

    groups is how many there may be, of rows or of columns: 1, 2, 4 or 8. Rows may be told apart by
    the bits that they use. out takes the coded symbols at its beginning and the planes at its end;
    sizes are set to the bytes of both, (0, …) where coding saves nothing. out has the bytes of the
    words, 17 a row, 1 a column, and 32,768 besides.
    """

def groupfloats_decode(
    data: NDArray[np.uint8], mantissa: int, by_columns: bool, words: Array, /
) -> int:
    """Decode at least 8 bytes into `words` (R, C); return 0, or what is wrong (`float_side`)."""

# floats.c

def floats_encode(
    words: Array,
    low: int,
    mask: int,
    told_apart: bool,
    contexts: int,
    width: int,
    column_levels: Array | None,
    out: Array,
    /,
) -> int:
    """Encode floats (R, C) as unsigned words, cut at bit `low` as by `fields_split`.

    Rows may be told apart by the bits they use if asked for; contexts, a power of two, is how many
    there may be. width and column_levels (C,) uint8 are what chunks share, or 0 and None. Returns
    the bytes, or 0 if that takes more than the words do, or symbols are too many for a code.
    """

def floats_decode(data: Array, low: int, column_levels: Array | None, words: Array, /) -> int:
    """Undo `floats_encode` from at least 8 bytes; return 0 or what is wrong with them.

    -1: the side information; -2: the code lengths; -3: the size; -4: where a stream ends.
    """

def fields_split(words: Array, low: int, mask: int, symbols: Array, rest: Array, /) -> int:
    """Cut each word, sign on top, at bit `low`.

    words (n,) unsigned; symbols = words >> low & mask, of 1 or 2 bytes; rest = the `low` bits below
    with the word's top bit above them, of as many bytes as words, or 1 where these have 2.
    """

def fields_merge(symbols: Array, rest: Array, low: int, words: Array, /) -> int:
    """Undo `fields_split`; bits beyond the fields' widths are dropped."""
# gradients.c

def is_finite(values: NDArray[np.float32], /) -> bool:
    """Return whether no value, (n,), is infinite or NaN."""
