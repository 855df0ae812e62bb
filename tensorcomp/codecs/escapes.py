"""The escaped elements of `ans`: values of symbols that are too rare to have a code.

They are stored in the elements' order, so many bits each; one symbol, which has a code, stands for
them all, and for itself.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.codecs.alphabet import Alphabet
from tensorcomp.codecs.frequencies import Frequencies
from tensorcomp.errors import CodecError

NO_ESCAPE = 1 << 16  # what the header holds where a symbol would stand


def pack_escaped(
    symbols: np.ndarray, indices: np.ndarray, counted: Alphabet, chosen: Frequencies
) -> bytes:
    """Return the values of the escaped elements, in the elements' order."""
    from tensorcomp.kernels import frequencies as kernel

    if chosen.rare is None:
        return b""
    escaped = np.zeros((len(chosen.rare), 1 << counted.shift), np.uint8)
    escaped[:, counted.symbols] = chosen.rare
    escaped = escaped.repeat(len(counted.counts) // len(escaped), 0)
    values = np.empty(chosen.escapes + 1, np.uint16)
    kernel.gather_escaped(symbols, indices, escaped.reshape(-1), values)
    packed = np.zeros((chosen.escapes * counted.shift + 7) // 8 + 8, np.uint8)
    kernel.pack_values(values[:-1], counted.shift, packed)
    return packed[:-8].tobytes()


def unpack_escaped(
    symbols: np.ndarray, escape: int, escapes: int, packed: bytes, width: int
) -> np.ndarray:
    """Return the escaped values of an array of symbols, in its dtype.

    Raises
    ------
    CodecError
        If the escape symbol or the values cannot be those of such an array.
    """
    from tensorcomp.kernels import frequencies as kernel

    if escape == NO_ESCAPE:
        return np.empty(0, symbols.dtype)
    if escape >> (8 * symbols.itemsize):
        raise CodecError(
            f"ans: the escape symbol {escape} has more than {8 * symbols.itemsize} bits"
        )
    if escapes > symbols.size:
        raise CodecError(f"ans: {escapes} escaped values in {symbols.size} elements")
    if not width <= 8 * symbols.itemsize or len(packed) != (escapes * width + 7) // 8:
        raise CodecError(f"ans: {len(packed)} bytes for {escapes} values of {width} bits")
    values = np.empty(escapes, symbols.dtype)
    kernel.unpack_values(np.frombuffer(packed + bytes(8), np.uint8), width, values)
    return values


def restore_escaped(symbols: np.ndarray, escape: int, values: np.ndarray) -> None:
    """Put the values, in their order, where the escape symbol stands.

    Raises
    ------
    CodecError
        If it stands in more places or fewer.
    """
    places = np.flatnonzero(symbols == escape)
    if places.size != values.size:
        raise CodecError(f"ans: {places.size} escape symbols for {values.size} values")
    symbols[places] = values
