"""Arrays whose elements are all the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.base import Pieces, Serializer
from tensorcomp.errors import CodecError, NotRepresentable

_PROBE = 64  # elements that usually show that an array is not constant


@dataclass(frozen=True)
class Constant(Serializer):
    """Store the one bit pattern that all elements have.

    For fresh norms, zero biases and padding.

    Patterns are compared as bits, so −0.0 differs from 0.0 and every NaN payload from any other.

    Layout: the bytes of one element; none for an array without elements. Lossless. Cost: O(n),
    0.1 to 0.3 ns an element; O(1) for most arrays that are not constant, which are not
    representable. Not for arrays of two values: use `runlength` or `palette`.
    """

    id: ClassVar[str] = "constant"
    off_wire: ClassVar[str] = "it codes arrays of equal elements only"

    def encode(self, array: np.ndarray, shared: bytes = b"") -> Pieces:
        """Return the bytes of the first element."""
        elements = _elements(array)
        for part in (elements[:_PROBE], elements):
            if (part != elements[0]).any():
                raise NotRepresentable("constant: the array's elements differ")
        return [array.reshape(-1).view(np.uint8)[: array.itemsize].tobytes()]

    def decode(self, data: np.ndarray, out: np.ndarray, shared: bytes = b"") -> None:
        """Fill `out` with the one element."""
        if data.size != out.itemsize:
            raise CodecError(f"constant: expected {out.itemsize} bytes, got {data.size}")
        _elements(out)[...] = _elements(np.frombuffer(data.tobytes(), out.dtype))


def _elements(array: np.ndarray) -> np.ndarray:
    """Return an array's bits as (n,) unsigned integers, or (n, words) where they are wider."""
    size = array.itemsize
    word = next(word for word in (8, 4, 2, 1) if size % word == 0)
    flat = array.reshape(-1).view(f"<u{word}")
    return flat if word == size else flat.reshape(-1, size // word)
