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

# gradients.c

def is_finite(values: NDArray[np.float32], /) -> bool:
    """Return whether no value, (n,), is infinite or NaN."""
