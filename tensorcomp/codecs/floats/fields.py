"""Floats cut into exponent and mantissa."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import ArraySpec, Transform
from tensorcomp.codecs.bit_views import as_words, word_dtype
from tensorcomp.kernels import native

# Exponent bits of each float, by name; the others have one sign bit and the mantissa.
_EXPONENT_BITS = {
    "float64": 11,
    "float32": 8,
    "float16": 5,
    "bfloat16": 8,
    "float8_e4m3fn": 4,
    "float8_e4m3fnuz": 4,
    "float8_e5m2": 5,
    "float8_e5m2fnuz": 5,
}
MIN_BYTES = 8  # bytes of any chunk of `floats` and `groupfloats`
WRONG = {  # what their kernels say of a chunk that they cannot decode
    -1: "the side information is damaged",
    -2: "the code lengths make no prefix code",
    -3: "its streams and planes have other sizes than its bytes",
    -4: "a stream does not end where it should",
}
_USUAL_EXPONENT_BITS = {1: 4, 2: 5, 4: 8, 8: 11}  # other types are cut like one of its size


@dataclass(frozen=True)
class Fields(Transform):
    """Split each float into its exponent and the rest.

    The exponent takes `mantissa_bits` top bits of the mantissa with it.

    Parts: ``exponent``, unsigned, (exponent << mantissa_bits) | top mantissa bits; ``mantissa``,
    unsigned, the sign above the other mantissa bits. Both have the array's shape. Within one
    exponent the density of weights still falls, so a bit or two of the mantissa are worth coding
    (0.05 to 0.08 bit a weight on trained layers); all further bits are noise.

    Lossless: bits are moved, never interpreted. Cost: O(n), 0.2 ns an element each way. Not for
    integers, and not where few distinct values occur (`palette`, `grid`).

    References
    ----------
    Exponents coded apart: Hershcovitch et al. 2024, "ZipNN"; Zhang et al. 2025, "DFloat11".
    """

    id: ClassVar[str] = "fields"
    for_any_array: ClassVar[bool] = True
    may_refuse: ClassVar[bool] = False
    default_parts: ClassVar[Mapping[str, str]] = {
        "exponent": "huffman(contexts=8)",
        "mantissa": "bitpack",
    }
    mantissa_bits: int = argument(0, least=0, most=4)

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the unsigned parts, as narrow as their bits allow."""
        cut = cut_of(spec.dtype, self.mantissa_bits)
        return {
            "exponent": ArraySpec(spec.shape, cut.high),
            "mantissa": ArraySpec(spec.shape, cut.rest),
        }

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return exponent and mantissa."""
        cut = cut_of(array.dtype, self.mantissa_bits)
        high = np.empty(array.shape, cut.high)
        rest = np.empty(array.shape, cut.rest)
        words = as_words(array).reshape(-1)
        native.fields_split(words, cut.low, cut.mask, high.reshape(-1), rest.reshape(-1))
        return {"exponent": high, "mantissa": rest}

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Put the fields together again."""
        high, rest = parts["exponent"].reshape(-1), parts["mantissa"].reshape(-1)
        low = cut_of(out.dtype, self.mantissa_bits).low
        native.fields_merge(high, rest, low, as_words(out).reshape(-1))


class Cut(NamedTuple):
    """Bit positions at which the elements of a dtype are cut.

    Parameters
    ----------
    low : int
        Bits below the exponent part.
    mask : int
        The exponent part's bits, moved down.
    high, rest : numpy.dtype
        Unsigned, of the exponent part and of the other bits with the sign above them.
    """

    low: int
    mask: int
    high: np.dtype
    rest: np.dtype


@functools.cache
def cut_of(dtype: np.dtype, mantissa_bits: int) -> Cut:
    """Return where an element of a dtype is cut."""
    total = 8 * word_dtype(dtype).itemsize - 1
    exponent = _EXPONENT_BITS.get(dtype.name, _USUAL_EXPONENT_BITS[dtype.itemsize])
    bits = min(exponent + mantissa_bits, total)
    low = total - bits
    return Cut(low, (1 << bits) - 1, _narrowest(bits), _narrowest(low + 1))


def _narrowest(bits: int) -> np.dtype:
    return np.dtype(f"<u{next(size for size in (1, 2, 4, 8) if 8 * size >= bits)}")
