"""Uniform quantization: one step, the rate left to the entropy coder."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import ArraySpec, Transform
from tensorcomp.codecs.bit_views import as_words
from tensorcomp.codecs.rounding import as_reals, check_float, largest, require_finite
from tensorcomp.codecs.strategy import Strategy, at_rates
from tensorcomp.errors import CodecError, NotRepresentable
from tensorcomp.kernels import native

if TYPE_CHECKING:
    from tensorcomp.codecs.feedback import Matrix, Rounding

DEAD_ZONE = 0.57  # steps that feedback rounds to 0: zeros cost few bits, and their errors go on
MIN_ELEMENTS = 256  # elements that pay for centroids
SAMPLE = 1 << 15  # elements that centroids are learned from, about
ROW = 64  # codes that kernels may write at once
_SAMPLED_RUN = 64  # neighbours that are sampled together
_SINGLE_OVERFLOWS = (2 - 2.0**-24) * 2.0**127  # what float32 rounds to infinity, and above
_CODES = np.dtype("<i2")


class StepQuantizer(Transform):
    """Base class of quantizers to multiples of a step.

    Centroids correct the values of the lowest ones.

    Attributes
    ----------
    points : int
        Points in a step.
    max_steps, max_centroids : int
    """

    lossless: ClassVar[bool] = False
    elementwise: ClassVar[bool] = True
    points: ClassVar[int] = 1
    max_steps: ClassVar[int]
    max_centroids: ClassVar[int]
    step: float

    @abstractmethod
    def quantize(
        self, values: np.ndarray, dtype: np.dtype, codes: np.ndarray, centroids: np.ndarray
    ) -> int:
        """Set codes and centroids; return how many centroids there are.

        -1 for wrong values.

        Parameters
        ----------
        values : numpy.ndarray
            (n,) float32 or float64.
        dtype : numpy.dtype
            The array's.
        codes : numpy.ndarray
            int16, n rounded up to a multiple of `ROW`.
        centroids : numpy.ndarray
            (`max_centroids`,) int8.
        """

    def look_up(self, codes: np.ndarray, lowest: int, table: np.ndarray, out: np.ndarray) -> None:
        """Set `out` to the values that codes stand for.

        They are looked up in a table of points, from the lowest on.
        """
        native.codebook_look_up(codes, lowest, table, out)

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the specs of the codes and of the centroids.

        There are as many centroids as differ from 0.
        """
        return {
            "codes": ArraySpec(spec.shape, _CODES),
            "centroids": ArraySpec((-1,), np.dtype(np.int8)),
        }

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return codes and centroids."""
        values = as_reals(array, self.id)
        codes = np.empty(-(-array.size // ROW) * ROW, _CODES)
        centroids = np.empty(self.max_centroids, np.int8)
        found = self.quantize(values, array.dtype, codes, centroids)
        if found < 0:
            require_finite(array, self.id)
            raise NotRepresentable(
                f"{self.id}: an element has more than {self.max_steps:,} steps of {self.step:g}"
            )
        return {"codes": codes[: array.size].reshape(array.shape), "centroids": centroids[:found]}

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Look the value of each code up."""
        codes, centroids = parts["codes"].reshape(-1), parts["centroids"]
        check_float(out.dtype, self.id)
        if centroids.size > self.max_centroids:
            raise CodecError(
                f"{self.id}: expected at most {self.max_centroids} centroids, got {centroids.size}"
            )
        if codes.size == 0:
            return
        lowest = self.points * (int(codes.min()) - 1) + 1
        table = np.empty(self.points * int(codes.max()) + 1 - lowest, out.dtype)
        fill_values(lowest, self.points, self.step, centroids, table)
        self.look_up(codes, lowest, as_words(table), as_words(out).reshape(-1))


@dataclass(frozen=True)
class Uniform(StepQuantizer):
    """Round each element to a multiple of one step.

    It is decoded to the mean of its cell.

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
    zeros: ClassVar[str] = "kept"
    strategies: ClassVar[tuple[Strategy, ...]] = (
        *at_rates("uniform", "uniform($step)"),
        *at_rates("uniform, one step", "uniform($step)", common=True),
    )
    default_parts: ClassVar[Mapping[str, str]] = {
        "codes": "ans(contexts=16, states=12, bypass=true)",
        "centroids": "raw",
    }
    max_steps: ClassVar[int] = 32767
    max_centroids: ClassVar[int] = 8
    step: float = argument(above=0)
    bounded: bool = False

    def quantize(
        self, values: np.ndarray, dtype: np.dtype, codes: np.ndarray, centroids: np.ndarray
    ) -> int:
        """Set codes and centroids; return how many centroids there are.

        -1 for wrong values.
        """
        inverse = inverse_of(self.step, values.dtype, "uniform")
        learns = values.size >= MIN_ELEMENTS and not self.bounded
        stride = _SAMPLED_RUN * max(values.size // SAMPLE, 1) if learns else 0
        codes = codes[: values.size]
        found = native.uniform_encode(values, inverse, stride, codes, centroids)
        if self.bounded and found >= 0 and codes.size:
            self._confine(values, dtype, codes)
        return found

    def rounding(self, matrix: Matrix) -> Rounding:
        """Return the rounding to multiples of the step."""
        step = np.float32(self.step)

        def round_column(_i: int, targets: np.ndarray, _ahead: np.ndarray | None) -> np.ndarray:
            steps = targets / step
            result: np.ndarray = np.rint(steps) * step
            result[np.abs(steps) < DEAD_ZONE] = 0
            return result

        return round_column

    def _confine(self, values: np.ndarray, dtype: np.dtype, codes: np.ndarray) -> None:
        """Mend the codes whose value, once it is rounded to the dtype, lies beyond the bound."""
        lowest = int(codes.min()) - 1
        table = np.empty(int(codes.max()) + 2 - lowest, dtype)
        fill_values(lowest, 1, self.step, np.empty(0, np.int8), table)
        wide = table.astype(np.float64)
        inside = native.uniform_confine(values, lowest, wide, self.step / 2, codes)
        if not inside or codes.min() < -self.max_steps:
            raise NotRepresentable(
                f"uniform: {dtype} is too coarse for errors within {self.step / 2:g}"
            )


def inverse_of(step: float, dtype: np.dtype, codec: str) -> float:
    """Return 1 / step, which kernels round to the dtype of the values."""
    inverse = 1 / float(step) if step else math.inf
    if inverse >= (_SINGLE_OVERFLOWS if dtype.itemsize == 4 else math.inf):
        raise NotRepresentable(f"{codec}: a step of {step:g} is too small for {dtype}")
    return inverse


def fill_values(
    lowest: int, parts: int, step: float, centroids: np.ndarray, out: np.ndarray
) -> None:
    """Set `out` to the values of points, in its dtype.

    What overflows becomes its largest number.

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
