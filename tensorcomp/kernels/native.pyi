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

    Symbols have 1 or 2 bytes, those of 1 have 8 bits; levels of rows and columns below 16, uint8, and the context of each sum of two, (31,)
    uint8, or None for a single context; level_bits is what more than one context needs besides. Set are code lengths
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
# ans.c

def ans_index(
    words: Array,
    folded: bool,
    bits: int,
    row_levels: Array | None,
    column_levels: Array | None,
    value_of: Array | None,
    states: int,
    indices: Array,
    counts: Array,
    /,
) -> None:
    """Set indices (n,) uint16 to context << bits | symbol, and counts (S,) int64 of each index.

    words (n,) uint8 or uint16: of signed integers if folded, whose symbols then are 0, 1, 2, 3 …
    for 0, -1, 1, -2 …. value_of (31,) uint16 is context << bits of the sum of a row's level and a
    column's. With a machine of so many states (0: none), the upper half of the contexts is that of
    quantizer 1.
    """

def ans_encode(
    indices: Array,
    table: Array,
    symbols: Array,
    contexts: int,
    bits: int,
    states: int,
    escape: int,
    escapes: int,
    streams: Array,
    heads: Array,
    escaped: Array,
    /,
) -> int:
    """Write four streams of bits, one behind the other, and return their bytes.

    indices (n,) uint16, context << bits | symbol, the symbols (A,) uint16 of frequencies, `table`
    (K, A) int64, where neighbours of the contexts are one. Sets heads (8,) int64 to the streams'
    bits and the decoder's first states. `escape`, if it is below 65,536, stands for all symbols
    that a context has no frequency for; these and itself, so many, are put into `escaped`, uint8
    zeros with 8 bytes to spare. streams: 4 × ((n // 4 + 1) × states // 8 + 9) bytes.
    """

def ans_decode(
    stream: Array,
    heads: Array,
    packed: bytes,
    symbols: Array,
    contexts: int,
    states: int,
    folded: bool,
    row_levels: Array | None,
    column_levels: Array | None,
    value_of: Array | None,
    machine: int,
    escape: int,
    escaped: Array,
    out: Array,
    /,
) -> int:
    """Decode (n,) uint8 or uint16; return how often `escape` came, or -1 if the table is damaged.

    heads (8,) int64 are the streams' first bits and states, and then those reached. packed: the
    frequencies of the symbols (A,) uint16, with 8 bytes to spare. value_of (31,) uint16 is context
    << states of the sum of two levels. machine, folded: as in `ans_index`. escaped (E,) like `out`:
    the values that take the place of `escape`.
    """

def ans_unpack_escaped(packed: bytes, width: int, folded: bool, values: Array, /) -> None:
    """Read values of `width` bits, one behind the other; `packed` has 8 bytes to spare."""

# frequencies.c

def ans_frequencies(
    counts: Array,
    states: int,
    rows: int,
    without: int,
    log2: Array,
    symbols: Array,
    table: Array,
    packed: Array,
    info: Array,
    /,
) -> int:
    """Choose frequencies that cost least, and return the number of their contexts, K.

    counts (contexts, symbols) int64, overwritten; log2 (2**states + 1,) int64: of 0 … 2**states in
    2**-20 bit. Sets symbols (A,) uint16, table (K, A), packed (uint8 zeros, 30 bits an entry and 9
    bytes), each with room for all counts, and info (4,): A, the escape symbol, how often it stands
    for a symbol, bits packed. `rows` levels need not be stored for `without` contexts or fewer.
    """

# trellis.c

def trellis_encode(
    values: Array, scale: float, states: int, every: int, codes: Array, sums: Array, counts: Array, /
) -> bool:
    """Set `codes` to those of least squared error of values (n,) float32 or float64, finite.

    scale is 32,768 / step; states those of the machine. codes int16, n rounded up to a multiple of
    64. Of each `every` rows of 64 elements, one is added to sums and counts (M,) int64, or none
    where it is 0: how far magnitudes lie above that of their points 0 … M - 1 half steps from 0,
    in 1/32,768 step. Returns whether no element is NaN or has more than 32,766 steps.
    """

def trellis_decode(
    codes: Array, states: int, lowest: int, table: Array, out: Array, /
) -> None:
    """Set out[i] = table[2 codes[i] - quantizer of i - lowest]: the table has every such place."""

# gradients.c

def is_finite(values: NDArray[np.float32], /) -> bool:
    """Return whether no value, (n,), is infinite or NaN."""
