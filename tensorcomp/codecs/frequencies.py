"""Integer frequencies for entropy coders: how often a coder expects each symbol in each context.

Rare symbols would cost more by the share of a table that they take than by their own bits. One
symbol can therefore stand for all rare ones, the escape symbol; the values that it stands for,
its own among them, are stored as they are. Everything is integer arithmetic, so that equal inputs
give equal bytes on every machine.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from tensorcomp.codecs.alphabet import Alphabet

_FRACTION = 20  # costs are counted in units of 2**-20 bit
_LEVEL_BITS = 3  # what a row's level costs, about
_SLOT = (
    92  # what a state more costs a full table: 1.44 bit for each time it is gone through, in 1/64
)
_ENTRY = 192  # what an entry of the stored table costs, in 1/64 bit


@functools.cache
def log2_table(states: int) -> np.ndarray:
    """Return log2 of 0 .. 2**states in units of 2**-20, int64, by integer arithmetic; 0 of 0."""
    numbers = np.arange(1, (1 << states) + 1, dtype=np.uint64)
    whole = np.frexp(numbers.astype(np.float64))[1].astype(np.uint64) - np.uint64(1)  # exact
    mantissas = numbers << (np.uint64(31) - whole)
    fraction = np.zeros_like(numbers)
    for _ in range(_FRACTION):  # square, and see whether it passes 2
        mantissas = (mantissas * mantissas) >> np.uint64(31)
        bit = mantissas >> np.uint64(32)
        mantissas >>= bit
        fraction = (fraction << np.uint64(1)) | bit
    table = ((whole << np.uint64(_FRACTION)) | fraction).astype(np.int64)
    table = np.concatenate([np.zeros(1, np.int64), table])
    table.flags.writeable = False
    return table


@dataclass(frozen=True)
class Frequencies:
    """What a coder expects, and the bits that it stores to say so.

    Parameters
    ----------
    symbols : numpy.ndarray
        (A,) uint16, ascending: those that have a code.
    table : numpy.ndarray
        (K, A) int64: each row adds up to 2**states, or to 0 where its context is empty.
    packed : numpy.ndarray
        uint8: the table in few bits.
    escape : int or None
        The symbol that stands for the rare ones.
    escaped : numpy.ndarray
        (K, 2**shift) uint8: 1 for each symbol that this context has no code for.
    escapes : int
        How many elements are escaped.
    """

    symbols: np.ndarray
    table: np.ndarray
    packed: np.ndarray
    escape: int | None
    escaped: np.ndarray
    escapes: int


def cheapest_frequencies(counted: Alphabet, states: int, rows: int) -> Frequencies:
    """Return the frequencies, of all contexts or of contexts joined two by two, that cost least.

    Parameters
    ----------
    counted : Alphabet
        With K contexts, a power of two; fewer are tried as well.
    states : int
        Bits of a state: frequencies of a context add up to 2**states.
    rows : int
        Rows whose levels need not be stored where one context is left.
    """
    best: tuple[int, Frequencies] | None = None
    alphabet = counted
    while True:
        number = alphabet.counts.shape[0]
        levels = _LEVEL_BITS * rows if number > 1 else 0
        for candidate in (_plain(alphabet, states), _with_escape(alphabet, states)):
            if candidate is not None:
                cost = candidate[0] + (levels << _FRACTION)
                if best is None or cost < best[0]:
                    best = cost, candidate[1]
        if number == 1:
            assert best is not None
            return best[1]
        alphabet = alphabet.merged()


def _plain(alphabet: Alphabet, states: int) -> tuple[int, Frequencies] | None:
    """Return frequencies of all symbols and what they cost, or None if they are too many."""
    if alphabet.symbols.size > 1 << (states - 1):
        return None
    escaped = np.zeros((alphabet.counts.shape[0], 1 << alphabet.shift), np.uint8)
    return _build(alphabet.symbols, alphabet.counts, states, None, escaped, 0)


def _with_escape(alphabet: Alphabet, states: int) -> tuple[int, Frequencies] | None:
    """Return frequencies of the symbols that are not rare, and what they cost."""
    counts = alphabet.counts
    if counts.shape[1] == 1:
        return None
    everything = counts.sum(axis=1, keepdims=True)
    rare = (counts * (64 * alphabet.shift + _SLOT)) << states < _SLOT * everything + (
        _ENTRY << states
    )
    most = 1 << (states - 1)
    if counts.shape[1] > most:
        by_count = np.argsort(-counts, axis=1, kind="stable")
        np.put_along_axis(rare, by_count[:, most:], values=True, axis=1)
    escape = int(counts.sum(axis=0).argmin())
    rare[:, escape] = True
    rare &= counts > 0
    escapes = np.where(rare, counts, 0).sum(axis=1)
    kept = np.where(rare, 0, counts)
    kept[:, escape] = escapes
    escaped = np.zeros((counts.shape[0], 1 << alphabet.shift), np.uint8)
    escaped[:, alphabet.symbols] = rare
    coded = np.flatnonzero(kept.any(axis=0))
    return _build(
        alphabet.symbols[coded],
        np.ascontiguousarray(kept[:, coded]),
        states,
        int(alphabet.symbols[escape]),
        escaped,
        int(escapes.sum()),
    )


def _build(
    symbols: np.ndarray,
    counts: np.ndarray,
    states: int,
    escape: int | None,
    escaped: np.ndarray,
    escapes: int,
) -> tuple[int, Frequencies]:
    from tensorcomp.kernels import frequencies as kernel

    table = np.empty_like(counts)
    cost = int(kernel.normalize(counts, states, log2_table(states), table))
    packed = np.zeros(table.size * kernel.LONGEST_CODE // 8 + 9, np.uint8)
    bits = int(kernel.pack(table, packed))
    width = escaped.shape[1].bit_length() - 1
    cost += (bits + escapes * width) << _FRACTION
    packed = packed[: (bits + 7) // 8]
    return cost, Frequencies(symbols, table, packed, escape, escaped, escapes)
