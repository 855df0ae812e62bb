"""Low bits of large integers, which are as good as random, stored raw.

A coder's table costs more the more symbols it has. Where the mean magnitude of integers is 8 or
more, their distribution is so flat that the lowest bits can go past the coder for less than 0.002
bit an element.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.errors import CodecError
from tensorcomp.kernels import native

MAX_LOW_BITS = 8
_KEPT = 3  # bits that the mean magnitude keeps


def split_low(array: np.ndarray) -> tuple[int, np.ndarray, np.ndarray]:
    """Split signed integers into low bits, packed, and the bits above.

    Parameters
    ----------
    array : numpy.ndarray
        int8 or int16, not empty.

    Returns
    -------
    count : int
        At most `MAX_LOW_BITS`.
    high : numpy.ndarray
        The array shifted right by `count` bits.
    packed : numpy.ndarray
        The low bits as bit planes, uint8.
    """
    mean = native.sum_magnitudes(array.reshape(-1)) // array.size
    count = min(max(mean.bit_length() - _KEPT, 0), MAX_LOW_BITS)
    if count == 0:
        return 0, array, np.empty(0, np.uint8)
    low = (array & ((1 << count) - 1)).astype(np.uint8).reshape(-1)
    packed = np.empty(native.bitpack_flat_bytes(low.size, count), np.uint8)
    native.bitpack_pack_low(low, count, packed)
    high = np.empty_like(array)
    np.right_shift(array, count, out=high)
    high.flags.writeable = False
    return count, high, packed


def low_bytes(count: int, size: int, available: int) -> int:
    """Return the bytes that the low bits of `size` elements take."""
    if count > MAX_LOW_BITS:
        raise CodecError(f"ans: expected at most {MAX_LOW_BITS} low bits stored apart, got {count}")
    taken = native.bitpack_flat_bytes(size, count)
    if taken > available:
        raise CodecError(f"ans: expected {taken} bytes of low bits, got {available}")
    return taken


def join_low(high: np.ndarray, count: int, packed: np.ndarray) -> None:
    """Shift signed integers, in place, and put their low bits back."""
    low = np.empty((1, high.size), np.uint8)
    native.bitpack_unpack(packed, np.array([[0, count]], np.uint8), low)
    np.left_shift(high, count, out=high)
    np.bitwise_or(high, low.reshape(high.shape), out=high, casting="unsafe")
