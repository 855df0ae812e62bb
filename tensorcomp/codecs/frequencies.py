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

from tensorcomp.kernels import native

NO_ESCAPE = 1 << 16  # stands for an escape symbol where there is none
_FRACTION = 20  # costs are counted in units of 2**-20 bit
_LONGEST_CODE = 30  # bits of a frequency in the packed table at most


@functools.cache
def log2_table(states: int) -> np.ndarray:
    """Return log2 of 0 .. 2**states in units of 2**-20, int32, by integer arithmetic; 0 of 0."""
    numbers = np.arange(1, (1 << states) + 1, dtype=np.uint64)
    whole = np.frexp(numbers.astype(np.float64))[1].astype(np.uint64) - np.uint64(1)  # exact
    mantissas = numbers << (np.uint64(31) - whole)
    fraction = np.zeros_like(numbers)
    for _ in range(_FRACTION):  # square, and see whether it passes 2
        mantissas = (mantissas * mantissas) >> np.uint64(31)
        bit = mantissas >> np.uint64(32)
        mantissas >>= bit
        fraction = (fraction << np.uint64(1)) | bit
    table = ((whole << np.uint64(_FRACTION)) | fraction).astype(np.int32)
    table = np.concatenate([np.zeros(1, np.int32), table])
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
    escape : int
        The symbol that stands for those that a context has no code for; `NO_ESCAPE` if all have.
    escapes : int
        How many elements have such a symbol.
    """

    symbols: np.ndarray
    table: np.ndarray
    packed: np.ndarray
    escape: int
    escapes: int


def cheapest_frequencies(
    counts: np.ndarray, states: int, rows: int, without: int = 1
) -> Frequencies:
    """Return the frequencies, of all contexts or of contexts joined two by two, that cost least.

    Parameters
    ----------
    counts : numpy.ndarray
        (K, 2**bits of a symbol) int64, overwritten. K is a power of two; fewer contexts are tried
        as well, until they cost more.
    states : int
        Bits of a state: frequencies of a context add up to 2**states.
    rows : int
        Rows whose levels need not be stored where few contexts are left.
    without : int
        So many, that is.
    """
    symbols = np.empty(counts.shape[1], np.uint16)
    room = np.empty(counts.size, np.int64)
    packed = np.zeros(counts.size * _LONGEST_CODE // 8 + 9, np.uint8)
    info = np.empty(4, np.int64)
    number = native.ans_frequencies(
        counts, states, rows, without, log2_table(states), symbols, room, packed, info
    )
    size, escape, escapes, bits = info.tolist()
    table = room[: number * size].reshape(number, size)
    return Frequencies(symbols[:size], table, packed[: (bits + 7) // 8], escape, escapes)
