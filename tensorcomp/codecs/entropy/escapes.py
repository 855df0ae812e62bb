"""The escaped elements of `ans`: values of symbols that are too rare to have a code.

They are stored in the elements' order, so many bits each; one symbol, which has a code, stands for
them all, and for itself.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.errors import CodecError
from tensorcomp.kernels import native

NO_ESCAPE = 1 << 16  # stands for an escape symbol where there is none


def unpack_escaped(
    symbols: np.ndarray, escape: int, escapes: int, packed: bytes, width: int, folded: bool
) -> np.ndarray:
    """Return the escaped values of an array of symbols, in its dtype, unfolded if they are folded.

    Raises
    ------
    CodecError
        If the escape symbol or the values cannot be those of such an array.
    """
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
    native.ans_unpack_escaped(packed + bytes(8), width, folded, values)
    return values
