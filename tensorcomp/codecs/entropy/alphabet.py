"""What the entropy coders share: integers as symbols, and the alphabet that occurs."""

from __future__ import annotations

import numpy as np

from tensorcomp.codecs.bit_views import as_words
from tensorcomp.errors import CodecError


def symbols_of(array: np.ndarray) -> np.ndarray:
    """Return a flat array of uint8 or uint16 symbols with the array's bits.

    Elements wider than 16 bits are cut into their bytes.
    """
    return as_words(array).reshape(-1) if array.itemsize <= 2 else array.reshape(-1).view(np.uint8)


def symbol_bits(symbols: np.ndarray) -> int:
    """Return the bits that every symbol fits in; 8 for those of one byte."""
    return 8 if symbols.itemsize == 1 else max(int(symbols.max()).bit_length(), 1)


def pack_symbols(symbols: np.ndarray) -> bytes:
    """Return the ascending symbols as a bit map."""
    present = np.zeros(int(symbols[-1]) + 1, np.uint8)
    present[symbols] = 1
    return np.packbits(present, bitorder="little").tobytes()


def unpack_symbols(data: bytes, itemsize: int) -> np.ndarray:
    """Read what `pack_symbols` wrote for symbols of so many bytes.

    Raises
    ------
    CodecError
        If there is none, or one is too large.
    """
    present = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    symbols = present.nonzero()[0]
    if symbols.size == 0 or symbols[-1] >= 1 << (8 * itemsize):
        raise CodecError(f"the alphabet is empty or wider than {8 * itemsize} bits")
    return symbols.astype(np.uint16)
