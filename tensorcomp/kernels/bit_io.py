"""Numbers in a stream of bits, low bit first; positions are counted in bits."""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bits import U, load64, store64
from tensorcomp.kernels.jit import jit


@jit
def bit_length(value):
    """Return the bits of a number that is not negative."""
    length = np.int64(0)
    while value >> length > 0:
        length += 1
    return length


@jit
def put_bits(out, position, value, count):
    """Put the low `count` bits, at most 32, of `value` at bit `position`; return the next one.

    out uint8, zeros from there on, with 8 bytes to spare.
    """
    byte = np.int64(position >> 3)
    store64(out, byte, load64(out, byte) | (U(value) << U(position & 7)))
    return position + count


@jit
def get_bits(data, position, count):
    """Return `count` bits, at most 32, from bit `position`, as int64.

    Beyond the last 8 bytes of `data` (at least 8) come wrong bits, but nothing is read out of
    bounds.
    """
    byte = np.int64(min(position >> 3, data.size - 8))
    word = load64(data, byte) >> U(position & 7)
    return np.int64(word & ((U(1) << U(count)) - U(1)))


@jit
def put_gamma(out, position, value):
    """Put a number from 1 to 2**31 in Elias' gamma code: its length in zeros, then its bits."""
    length = bit_length(value)
    position = put_bits(out, position, np.int64(1) << (length - 1), length)
    return put_bits(out, position, value & ((np.int64(1) << (length - 1)) - 1), length - 1)


@jit
def get_gamma(data, position):
    """Return a number that `put_gamma` put, and the position behind it."""
    word = get_bits(data, position, 32)
    zeros = np.int64(0)
    while zeros < 31 and (word >> zeros) & 1 == 0:
        zeros += 1
    value = (np.int64(1) << zeros) | get_bits(data, position + zeros + 1, zeros)
    return value, position + 2 * zeros + 1


@jit
def put_code(word, used, entry):
    """Put code << 8 | length behind the `used` bits of a word; return both (see `flush_codes`).

    Only the low byte of `used` counts: it must not pass 63 between two flushes, and what codes add
    above it is cut off by the shift here and by the flush.
    """
    return word | ((entry >> U(8)) << (used & U(63))), used + entry


@jit
def flush_codes(out, position, word, used):
    """Store a word at the byte `position`; return (the next one, the bits left over, how many)."""
    store64(out, np.int64(position), word)
    whole = (used & U(63)) >> U(3)
    return position + whole, word >> (whole << U(3)), used & U(7)


@jit
def copy(source, target):
    """Copy bytes (n,); a loop, since an assignment of slices is not vectorised."""
    for i in range(source.size):
        target[i] = source[i]
