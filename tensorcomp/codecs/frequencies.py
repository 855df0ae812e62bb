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
    rare : numpy.ndarray or None
        (K, all symbols) bool: those that a context has no code for; None where there are none.
    escapes : int
        How many elements have such a symbol.
    """

    symbols: np.ndarray
    table: np.ndarray
    packed: np.ndarray
    escape: int | None = None
    rare: np.ndarray | None = None
    escapes: int = 0


def cheapest_frequencies(
    counted: Alphabet, states: int, rows: int, without: int = 1
) -> Frequencies:
    """Return the frequencies, of all contexts or of contexts joined two by two, that cost least.

    Parameters
    ----------
    counted : Alphabet
        With K contexts, a power of two; fewer are tried as well, until they cost more.
    states : int
        Bits of a state: frequencies of a context add up to 2**states.
    rows : int
        Rows whose levels need not be stored where few contexts are left.
    without : int
        So many, that is.
    """
    best: tuple[int, Frequencies] | None = None
    alphabet, falling = counted, True
    while True:
        number = alphabet.counts.shape[0]
        if falling or number <= without:  # the last ones need no levels, and so may be cheaper yet
            levels = _LEVEL_BITS * rows if number > without else 0
            falling = False
            for candidate in (_plain(alphabet, states), _with_escape(alphabet, states)):
                if candidate is not None:
                    cost = candidate[0] + (levels << _FRACTION)
                    if best is None or cost < best[0]:
                        best, falling = (cost, candidate[1]), True
            falling |= best is None
        if number == 1:
            assert best is not None
            return best[1]
        alphabet = alphabet.merged()


def _plain(alphabet: Alphabet, states: int) -> tuple[int, Frequencies] | None:
    """Return frequencies of all symbols and what they cost, or None if they are too many."""
    if alphabet.symbols.size > 1 << (states - 1):
        return None
    cost, table, packed = _normalize(alphabet.counts, states)
    return cost, Frequencies(alphabet.symbols, table, packed)


def _with_escape(alphabet: Alphabet, states: int) -> tuple[int, Frequencies] | None:
    """Return frequencies of the symbols that are not rare, and what they cost."""
    counts = alphabet.counts
    if counts.shape[1] == 1:
        return None
    # Escaping a symbol costs its bits each time, keeping it an entry and a state that is too many.
    most = (_SLOT * counts.sum(axis=1, keepdims=True) + (_ENTRY << states)) >> states
    rare = counts * (64 * alphabet.shift + _SLOT) < most
    largest = 1 << (states - 1)
    if counts.shape[1] > largest:
        by_count = np.argsort(-counts, axis=1, kind="stable")
        np.put_along_axis(rare, by_count[:, largest:], values=True, axis=1)
    rare &= counts > 0
    if not rare.any():
        return None
    escape = int(counts.sum(axis=0).argmin())
    rare[:, escape] = counts[:, escape] > 0
    kept = np.where(rare, 0, counts)
    kept[:, escape] = counts.sum(axis=1) - kept.sum(axis=1)
    escapes = int(kept[:, escape].sum())
    coded = np.flatnonzero(kept.any(axis=0))
    cost, table, packed = _normalize(kept[:, coded], states)
    cost += escapes * alphabet.shift << _FRACTION
    symbol = int(alphabet.symbols[escape])
    return cost, Frequencies(alphabet.symbols[coded], table, packed, symbol, rare, escapes)


def _normalize(counts: np.ndarray, states: int) -> tuple[int, np.ndarray, np.ndarray]:
    """Return what symbols and table cost, the table of frequencies, and its packed bytes."""
    from tensorcomp.kernels import frequencies as kernel

    counts = np.ascontiguousarray(counts)
    table = np.empty_like(counts)
    cost = int(kernel.normalize(counts, states, log2_table(states), table))
    packed = np.zeros(table.size * kernel.LONGEST_CODE // 8 + 9, np.uint8)
    bits = int(kernel.pack(table, packed))
    return cost + (bits << _FRACTION), table, packed[: (bits + 7) // 8]
