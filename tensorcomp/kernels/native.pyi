"""Kernels in C. Arrays are contiguous; table.h has the type and shape of each argument."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

cpu_level: int
"""Which level of the processor's instructions is used: 1, or 3 for x86-64-v3."""

# ans.c

def ans_bits(words: Array, folded: bool, /) -> int:
    """Return the bits of the largest symbol of (n,) uint16, folded as in `ans_index`."""

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
    values: Array, scale: float, states: int, every: int, codes: Array, centroids: Array, /
) -> int:
    """Set codes (m,) int16 to those of least squared error of values (n,) float32 or float64.

    scale is 32,768 / step; states those of the machine; m is n rounded up to a multiple of 64. Of
    each `every` rows of 64 elements one is looked at for the centroids (16,) int8 (0: none is).
    Returns how many centroids there are without zeros at the end, or -1 if an element is NaN or
    has more than 32,766 steps.
    """

def trellis_decode(codes: Array, states: int, lowest: int, table: Array, out: Array, /) -> None:
    """Set out[i] = table[2 codes[i] - quantizer of i - lowest]: the table has every such place."""

# gradients.c

def is_finite(values: NDArray[np.float32], /) -> bool:
    """Return whether no value, (n,), is infinite or NaN."""
