"""Zeros of both signs, with their signs stored apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.base import ArraySpec, Transform
from tensorcomp.codecs.bit_views import as_words
from tensorcomp.codecs.sparse.masks import sound_mask
from tensorcomp.errors import CodecError
from tensorcomp.kernels import native


@dataclass(frozen=True)
class SignedZeros(Transform):
    """Set the sign of every −0.0 to plus, and store the signs of all zeros apart.

    A weight times a mask of 0 is −0.0 where the weight was negative. `sparse`, `live` and `packed`
    take that for a value, and it costs as many bits as one.

    Parts: ``signs``, bool, one a zero, in row-major order, true for −0.0; ``values``, the array
    with zeros of plus sign. Elements are seen as bits: what is zero but for the top bit is a zero.

    Lossless. Cost: O(n), 1 ns an element each way, without the parts' coders; a bit a zero. Not
    where all zeros have one sign, nor for elements of 16 bytes.

    References
    ----------
    IEEE 754-2019, "Floating-point arithmetic", section 6.3: the sign of a product.
    """

    id: ClassVar[str] = "zeros"
    for_zeros: ClassVar[bool] = True
    may_refuse: ClassVar[bool] = False
    default_parts: ClassVar[Mapping[str, str]] = {"signs": "bitpack", "values": "sparse"}

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the spec of as many signs as there are zeros, and that of the array."""
        return {"signs": ArraySpec((-1,), np.dtype(np.bool_)), "values": spec}

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return signs and values."""
        words = as_words(array).reshape(-1)
        signs = np.empty(_zeros(words) + 1, np.bool_)  # the kernel writes before it counts
        values = np.empty(array.shape, array.dtype)
        native.zeros_strip_signs(words, signs, as_words(values).reshape(-1))
        return {"signs": signs[:-1], "values": values}

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Give the zeros their signs."""
        signs = sound_mask(parts["signs"], self.id)
        words = as_words(parts["values"]).reshape(-1)
        count = _zeros(words)
        if count != signs.size:
            raise CodecError(f"zeros: expected {count} signs, one a zero, got {signs.size}")
        if count:
            native.zeros_put_signs(words, signs, as_words(out).reshape(-1))
        else:
            out[...] = parts["values"]


def _zeros(words: np.ndarray) -> int:
    """Return how many words are zero but for the top bit."""
    return words.size - int(np.count_nonzero(words << words.dtype.type(1)))
