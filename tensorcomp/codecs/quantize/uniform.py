"""Uniform quantization: one step for all elements, the rate left to the entropy coder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import ArraySpec, Transform
from tensorcomp.codecs.bit_views import as_words
from tensorcomp.codecs.rounding import as_reals, check_float, largest, require_finite
from tensorcomp.codecs.strategy import Strategy, at_rates
from tensorcomp.errors import CodecError, NotRepresentable
from tensorcomp.kernels import native

MOST_CENTROIDS = 8
_LARGEST = 32767
_FEWEST = 256  # elements that pay for centroids
_SAMPLE = 1 << 15  # elements that centroids are learned from, about
_SAMPLED_RUN = 64  # neighbours that are sampled together
_SINGLE_OVERFLOWS = (2 - 2.0**-24) * 2.0**127  # what float32 rounds to infinity, and above
_CODES = np.dtype("<i2")
_CENTROIDS = ArraySpec((-1,), np.dtype(np.int8))


@dataclass(frozen=True)
class Uniform(Transform):
    """Round every element to a multiple of one step, and decode it to the mean of its cell.

    At equal error no other scalar quantizer with an entropy coder behind it needs noticeably fewer
    bits: of Gaussian weights 0.255 bit more than the limit R(D) = ½ log₂(σ²/D).

    Parts: ``codes``, int16, of the array's shape: the element divided by the step, rounded, ties to
    even. ``centroids``, int8, at most eight: how far the value of code ±1, ±2, … lies below its
    multiple of the step in magnitude, in 1/256 step. A value is sign(code) × (|code| −
    centroid / 256) × step in float64, rounded to the array's dtype.

    Error: at most step / 2 for an element, and what its centroid adds: less than step in all;
    rounding to the array's dtype comes on top. Fine steps give a mean square of step² / 12. With
    `bounded` there are no centroids, and every decoded value, its rounding included, lies within
    step / 2; arrays whose dtype is too coarse for that are refused.

    Parameters
    ----------
    step : float
        Width of a cell, in the unit of the elements; above 0.
    bounded : bool
        Whether the error of no element may exceed step / 2.

    Notes
    -----
    Cost: O(n), about 0.15 ns an element to encode and 0.4 ns to decode, without the codes' coder,
    which takes most of the time. Not for arrays with NaN or infinity, nor with elements of more
    than 32,767 steps. `trellis` needs 0.18 bit less for the same mean square, at two thirds of the
    speed; the largest error of an element is smaller here.

    References
    ----------
    Gish & Pierce 1968, "Asymptotically efficient quantizing"; centroids: Lloyd 1982, "Least squares
    quantization in PCM".
    """

    id: ClassVar[str] = "uniform"
    lossless: ClassVar[bool] = False
    elementwise: ClassVar[bool] = True
    zeros: ClassVar[str] = "kept"
    strategies: ClassVar[tuple[Strategy, ...]] = (
        *at_rates("uniform", "uniform($step)"),
        *at_rates("uniform, one step", "uniform($step)", common=True),
    )
    default_parts: ClassVar[Mapping[str, str]] = {
        "codes": "ans(contexts=16, states=12, bypass=true)",
        "centroids": "raw",
    }
    step: float = argument(above=0)
    bounded: bool = False

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the spec of the codes, and that of as many centroids as differ from 0."""
        return coded_parts(spec)

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return codes and centroids.

        Raises
        ------
        NotRepresentable
            If the array holds no finite floats, too large ones, or bounded ones of a dtype too
            coarse for the step.
        """
        values = as_reals(array, "uniform")
        codes, centroids = np.empty(array.shape, _CODES), np.empty(MOST_CENTROIDS, np.int8)
        inverse = inverse_of(self.step, values.dtype, "uniform")
        learns = array.size >= _FEWEST and not self.bounded
        stride = _SAMPLED_RUN * max(values.size // _SAMPLE, 1) if learns else 0
        flat = codes.reshape(-1)
        found = native.uniform_encode(values, inverse, stride, flat, centroids)
        if found < 0:
            require_finite(array, "uniform")
            raise NotRepresentable(
                f"uniform: an element has more than {_LARGEST} steps of {self.step:g}"
            )
        if self.bounded:
            self._confine(values, array.dtype, flat)
        return {"codes": codes, "centroids": centroids[:found]}

    def _confine(self, values: np.ndarray, dtype: np.dtype, codes: np.ndarray) -> None:
        """Mend the codes whose value, once it is rounded to the dtype, lies beyond the bound."""
        if codes.size == 0:
            return
        lowest = int(codes.min()) - 1
        table = np.empty(int(codes.max()) + 2 - lowest, dtype)
        fill_values(lowest, 1, self.step, np.empty(0, np.int8), table)
        wide = table.astype(np.float64)
        inside = native.uniform_confine(values, lowest, wide, self.step / 2, codes)
        if not inside or codes.min() < -_LARGEST:
            raise NotRepresentable(
                f"uniform: {dtype} is too coarse for errors within {self.step / 2:g}"
            )

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Look the value of each code up."""
        codes, centroids = parts["codes"].reshape(-1), parts["centroids"]
        check_float(out.dtype, "uniform")
        if centroids.size > MOST_CENTROIDS:
            raise CodecError(f"uniform: {centroids.size} centroids, at most {MOST_CENTROIDS}")
        if codes.size == 0:
            return
        lowest = int(codes.min())
        table = np.empty(int(codes.max()) + 1 - lowest, out.dtype)
        fill_values(lowest, 1, self.step, centroids, table)
        native.codebook_look_up(codes, lowest, as_words(table), as_words(out).reshape(-1))


def coded_parts(spec: ArraySpec) -> dict[str, ArraySpec]:
    """Return the spec of a quantizer's codes, and that of its centroids."""
    return {"codes": ArraySpec(spec.shape, _CODES), "centroids": _CENTROIDS}


def inverse_of(step: float, dtype: np.dtype, codec: str) -> float:
    """Return 1 / step, which kernels round to the dtype of the values.

    Raises
    ------
    NotRepresentable
        If it overflows: the step is too small for the dtype.
    """
    inverse = 1 / float(step) if step else math.inf
    if inverse >= (_SINGLE_OVERFLOWS if dtype.itemsize == 4 else math.inf):
        raise NotRepresentable(f"{codec}: a step of {step:g} is too small for {dtype}")
    return inverse


def fill_values(
    lowest: int, parts: int, step: float, centroids: np.ndarray, out: np.ndarray
) -> None:
    """Set `out` to the values of points, in its dtype; what overflows becomes its largest number.

    Parameters
    ----------
    lowest : int
        The first point, a multiple of step / parts; each of the others is the next one.
    parts : int
    step : float
    centroids : numpy.ndarray
        (M,) int8: how far the values of points ±1, ±2, … lie below them in magnitude, in 1/256
        step.
    out : numpy.ndarray
        (n,) of a float dtype.
    """
    wide = out.dtype.kind == "f" and out.itemsize >= 4
    values = out if wide else np.empty(out.size)
    native.uniform_values(lowest, parts, step, centroids, largest(out.dtype), values)
    if not wide:
        out[:] = values.astype(out.dtype)
