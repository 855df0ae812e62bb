"""What the entropy coders share: integers as symbols, and how often each occurs in each context."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensorcomp.codecs.contexts import ContextModel
from tensorcomp.codecs.words import as_words
from tensorcomp.errors import CodecError
from tensorcomp.kernels import native


def symbols_of(array: np.ndarray) -> np.ndarray:
    """Return a flat array of uint8 or uint16 symbols with the array's bits.

    Elements wider than 16 bits are cut into their bytes.
    """
    return as_words(array).reshape(-1) if array.itemsize <= 2 else array.reshape(-1).view(np.uint8)


def symbol_bits(symbols: np.ndarray) -> int:
    """Return the bits that every symbol fits in; 8 for those of one byte."""
    return 8 if symbols.itemsize == 1 else max(int(symbols.max()).bit_length(), 1)


def indices_of(symbols: np.ndarray, model: ContextModel | None, bits: int) -> np.ndarray:
    """Return context << bits | symbol of each element: the symbols themselves in one context."""
    return symbols if model is None else model.indices(symbols, bits)


@dataclass(frozen=True)
class Alphabet:
    """The symbols that occur in a chunk, and how often in each context.

    Parameters
    ----------
    symbols : numpy.ndarray
        (A,) uint16, ascending.
    counts : numpy.ndarray
        (K, A) int64.
    shift : int
        Bits of the largest symbol: code tables are indexed by context << shift | symbol.
    """

    symbols: np.ndarray
    counts: np.ndarray
    shift: int

    def merged(self) -> Alphabet:
        """Return the alphabet with neighbouring contexts joined two by two."""
        contexts, size = self.counts.shape
        joined = self.counts.reshape(contexts // 2, 2, size).sum(axis=1)
        return Alphabet(self.symbols, joined, self.shift)


def count_indices(indices: np.ndarray, bits: int, number: int) -> Alphabet:
    """Count what `indices_of` gives for symbols of so many bits in so many contexts."""
    counts = np.empty((number, 1 << bits), np.int64)
    native.contexts_count(indices, counts.reshape(-1))
    present = np.flatnonzero(counts.sum(axis=0)).astype(np.uint16)
    return Alphabet(present, np.ascontiguousarray(counts[:, present]), bits)


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
    symbols = np.flatnonzero(present)
    if symbols.size == 0 or symbols[-1] >= 1 << (8 * itemsize):
        raise CodecError(f"the alphabet is empty or wider than {8 * itemsize} bits")
    return symbols.astype(np.uint16)
