"""Floats rounded to a narrower float type."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import ArraySpec, Transform
from tensorcomp.codecs.bit_views import as_words
from tensorcomp.codecs.rounding import check_float, largest, widened
from tensorcomp.codecs.strategy import Strategy
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.errors import CodecError, NotRepresentable
from tensorcomp.kernels import native

TARGETS = ("F16", "BF16", "F8_E4M3", "F8_E5M2")
_MANY = 1 << 14  # elements from which on a table of 65,536 numbers pays


@dataclass(frozen=True)
class Cast(Transform):
    """Round each element to the nearest number of a narrower float type.

    Ties go to even.

    Parts: ``values``, of that type and the array's shape.

    Error: at most 2**-(m + 1) of its magnitude for an element, where the type has m bits of
    mantissa: 10 for F16, 7 for BF16, 3 for F8_E4M3, 2 for F8_E5M2. Below the type's smallest normal
    number it is half of the smallest subnormal one: the smallest elements become 0. Nothing
    overflows: an array with an element beyond the type's largest number is refused.

    Parameters
    ----------
    to : str
        ``F16`` (largest number 65,504), ``BF16``, ``F8_E4M3`` (448) or ``F8_E5M2`` (57,344), the
        names of safetensors.

    Notes
    -----
    Cost: O(n), 1 to 3 ns an element to encode (7 ns to a type of one byte), 0.5 to 2 ns to decode.
    Not for arrays whose own type is no wider, which are refused too; nor for the smallest size at
    an error: `uniform` needs far fewer bits.

    References
    ----------
    Kalamkar et al. 2019, "A Study of BFLOAT16 for Deep Learning Training"; Micikevicius et al.
    2022, "FP8 Formats for Deep Learning".
    """

    id: ClassVar[str] = "cast"
    lossless: ClassVar[bool] = False
    elementwise: ClassVar[bool] = True
    zeros: ClassVar[str] = "kept"
    needs_feedback: ClassVar[bool] = False  # errors are small, and zero on average
    strategies: ClassVar[tuple[Strategy, ...]] = (
        Strategy("fp16", 'cast("F16")'),
        Strategy("bf16", 'cast("BF16")'),
        Strategy("fp8 e4m3", 'cast("F8_E4M3")'),
        Strategy("fp8 e5m2", 'cast("F8_E5M2")'),
    )
    default_parts: ClassVar[Mapping[str, str]] = {"values": "floats"}
    to: str = argument(choices=TARGETS)

    @property
    def _dtype(self) -> np.dtype:
        dtype = numpy_dtype(self.to)
        assert dtype is not None
        return dtype

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the spec of the values."""
        return {"values": ArraySpec(spec.shape, self._dtype)}

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return the rounded values."""
        values = widened(array, "cast")
        if array.itemsize <= self._dtype.itemsize:
            raise NotRepresentable(f"cast: expected a type wider than {self.to}, got {array.dtype}")
        limit = largest(self._dtype)
        if values.size and max(values.max(), -values.min()) > limit:
            raise NotRepresentable(f"cast: an element is beyond {limit:g}, the largest {self.to}")
        return {"values": _round(values, self._dtype).reshape(array.shape)}

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Widen."""
        check_float(out.dtype, "cast")
        values = parts["values"]
        if out.itemsize <= values.itemsize:
            raise CodecError(f"cast: expected a type wider than {self.to}, got {out.dtype}")
        wide = _widen(values)
        if not np.isfinite(wide).all():
            raise CodecError("cast: a value is NaN or infinite")
        out[...] = wide.astype(out.dtype)


def _round(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return finite values rounded to a narrower dtype, ties to even."""
    if dtype != np.float16 or values.dtype != np.float32:
        return values.astype(dtype)
    rounded = np.empty(values.size, np.uint16)  # NumPy's own conversion takes ten times as long
    native.halves_round(as_words(values).reshape(-1), rounded)
    return rounded.view(dtype)


def _widen(values: np.ndarray) -> np.ndarray:
    """Return singles of the same values; looked up where that is faster."""
    many = values.dtype == np.float16 and values.size >= _MANY
    if values.itemsize > 1 and not many:
        return values.astype(np.float32)
    wide = np.empty(values.shape, np.float32)
    table, to = as_words(_singles(values.dtype)), as_words(wide)
    native.codebook_look_up(as_words(values).reshape(-1), 0, table, to.reshape(-1))
    return wide


@functools.cache
def _singles(dtype: np.dtype) -> np.ndarray:
    """Return every number of a dtype of one or two bytes as a single."""
    words = np.arange(1 << 8 * dtype.itemsize, dtype=f"u{dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        singles: np.ndarray = words.view(dtype).astype(np.float32)
    return singles
