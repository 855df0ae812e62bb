"""What a table of frequencies costs symbols, in integers.

Everything that decides about frequencies is integer arithmetic, so that equal inputs give equal
bytes on every machine.
"""

from __future__ import annotations

import functools

import numpy as np

_FRACTION = 20  # costs are counted in units of 2**-20 bit


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
