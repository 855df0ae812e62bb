"""Trellis-coded quantization: two interleaved quantizers, and the best path through them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import ArraySpec, Transform
from tensorcomp.codecs.bit_views import as_words
from tensorcomp.codecs.entropy.trellis_codes import TRELLIS_CODES
from tensorcomp.codecs.quantize.uniform import coded_parts, fill_values, inverse_of
from tensorcomp.codecs.rounding import as_reals, check_float, require_finite
from tensorcomp.codecs.strategy import Strategy, at_rates
from tensorcomp.errors import CodecError, NotRepresentable
from tensorcomp.kernels import native

MOST_CENTROIDS = 16
_ROW = 64  # codes that are stepped at once, and so elements side by side
_PARTS = 1 << 15  # of a step, in which kernels count
_FEWEST = 256  # elements that pay for centroids
_SAMPLE = 1 << 15  # elements that centroids are learned from, about


@dataclass(frozen=True)
class Trellis(Transform):
    """Round every element by one of two quantizers, half a step apart; choose all codes together.

    Which quantizer an element gets follows from the parities of the codes before it, by a machine
    of a few states (see `trellis_codes`). So each element has points at half the distance that
    its code must tell apart, and the sequence of codes of least squared error is found by dynamic
    programming. At equal error that takes 0.16 to 0.2 bit less than `uniform`: of Gaussian weights
    0.09, 0.075, 0.065 or 0.055 bit more than the limit R(D) with 4, 8, 16 or 32 states.

    Parts: ``codes``, int16, of the array's shape. ``centroids``, int8, at most sixteen: how far
    the values at ±1, ±2, … half steps lie below that point in magnitude, in 1/256 step. Code k of
    quantizer q stands for the point at p = 2 k − q half steps; its value is sign(p) × (|p| / 2 −
    centroid / 256) × step in float64, rounded to the array's dtype.

    Error: at most step for an element, and what its centroid adds, at most step / 2; rounding to
    the array's dtype comes on top. Fine steps give a mean square of step² / 15 with 8 states.

    Parameters
    ----------
    step : float
        Distance of the points of one quantizer, in the unit of the elements; above 0. The codes
        cost about as many bits as those of `uniform` with this step.
    states : int
        4, 8, 16 or 32: more give less error at the same rate, and take longer in proportion.

    Notes
    -----
    Cost: O(n × states); with 8 states about 1.1 ns an element to encode and 0.5 ns to decode,
    without the codes' coder. Not for arrays with NaN or infinity, nor with elements of more than
    32,766 steps; nor where the error of each single element is to be small (`uniform`). The codes
    must be coded by ``ans(trellis=…)`` with as many states, which tells the quantizers apart; with
    other coders there is no gain over `uniform`.

    References
    ----------
    Marcellin & Fischer 1990, "Trellis coded quantization of memoryless and Gauss-Markov sources";
    Fischer & Wang 1992, "Entropy-constrained trellis-coded quantization".
    """

    id: ClassVar[str] = "trellis"
    lossless: ClassVar[bool] = False
    elementwise: ClassVar[bool] = True
    strategies: ClassVar[tuple[Strategy, ...]] = at_rates("trellis", "trellis($step)")
    default_parts: ClassVar[Mapping[str, str]] = {
        "codes": "ans(contexts=16, states=12, trellis=8, bypass=true)",
        "centroids": "raw",
    }
    step: float = argument(above=0)
    states: int = argument(8, choices=TRELLIS_CODES)

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the spec of the codes, and that of as many centroids as differ from 0."""
        return coded_parts(spec)

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return codes and centroids.

        Raises
        ------
        NotRepresentable
            If the array holds no finite floats, or too large ones.
        """
        values = as_reals(array, "trellis")
        scale = inverse_of(self.step / _PARTS, values.dtype, "trellis")
        codes = np.empty(-(-array.size // _ROW) * _ROW, np.dtype("<i2"))
        centroids = np.empty(MOST_CENTROIDS, np.int8)
        every = max(array.size // _SAMPLE, 1) if array.size >= _FEWEST else 0
        found = native.trellis_encode(values, scale, self.states, every, codes, centroids)
        if found < 0:
            require_finite(array, "trellis")
            raise NotRepresentable(
                f"trellis: an element has more than 32,766 steps of {self.step:g}"
            )
        return {"codes": codes[: array.size].reshape(array.shape), "centroids": centroids[:found]}

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Find the quantizer of each code, and look its value up."""
        codes, centroids = parts["codes"].reshape(-1), parts["centroids"]
        check_float(out.dtype, "trellis")
        if centroids.size > MOST_CENTROIDS:
            raise CodecError(f"trellis: {centroids.size} centroids, at most {MOST_CENTROIDS}")
        if codes.size == 0:
            return
        lowest = 2 * int(codes.min()) - 1
        table = np.empty(2 * int(codes.max()) + 1 - lowest, out.dtype)
        fill_values(lowest, 2, self.step, centroids, table)
        words = as_words(out).reshape(-1)
        native.trellis_decode(codes, self.states, lowest, as_words(table), words)
