"""Trellis-coded quantization: two quantizers and the best path of codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.entropy.ans import TRELLIS_STATES
from tensorcomp.codecs.quantize.uniform import MIN_ELEMENTS, SAMPLE, StepQuantizer, inverse_of
from tensorcomp.codecs.strategy import Strategy, at_rates
from tensorcomp.errors import NotRepresentable
from tensorcomp.kernels import native

if TYPE_CHECKING:
    from tensorcomp.codecs.feedback import Matrix, Rounding

_MACHINES = 64  # that take elements in turn
_PARTS = 1 << 15  # of a step, in which kernels count


@dataclass(frozen=True)
class Trellis(StepQuantizer):
    """Round elements by two interleaved quantizers, all codes chosen together.

    The quantizers are half a step apart.

    Which quantizer an element gets follows from the parities of the codes before it, by a
    convolutional code of a few states. So each element has points at half the distance that
    its code must distinguish, and the sequence of codes of least squared error is found by dynamic
    programming. At equal error that takes 0.16 to 0.2 bit less than `uniform`: of Gaussian weights
    0.09, 0.075, 0.065 or 0.055 bit more than the limit R(D) with 4, 8, 16 or 32 states.

    Parts: ``codes``, int16, of the array's shape. ``centroids``, int8, at most sixteen: how far
    the values at ±1, ±2, … half steps lie below that point in magnitude, in 1/256 step. Code k of
    quantizer q stands for the point at p = 2 k − q half steps; its value is sign(p) × (|p| / 2 −
    centroid / 256) × step in float64, rounded to the array's dtype.

    The code is systematic with feedback, of rate 1/2. The low bit q of its state s names the
    quantizer of the next element; the parity z of the code that this gets moves it on to
    s >> 1 ^ q · (h⁰ >> 1) ^ z · (h¹ >> 1), by the parity-check polynomials (h⁰, h¹): octal (5, 2)
    for 4 states, (13, 4) for 8, (23, 4) for 16 and (45, 10) for 32. Element i drives copy i mod 64
    of the code: 64 copies, all in state 0 at first, are stepped at once in vector registers.

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
    must be coded by ``ans(trellis=…)`` with as many states, which has contexts for each quantizer;
    other coders gain nothing over `uniform`.

    References
    ----------
    Marcellin & Fischer 1990, "Trellis coded quantization of memoryless and Gauss-Markov sources";
    Fischer & Wang 1992, "Entropy-constrained trellis-coded quantization"; codes: Ungerboeck 1982,
    "Channel coding with multilevel/phase signals", for amplitude modulation.
    """

    id: ClassVar[str] = "trellis"
    zeros: ClassVar[str] = "lost"
    strategies: ClassVar[tuple[Strategy, ...]] = at_rates("trellis", "trellis($step)")
    default_parts: ClassVar[Mapping[str, str]] = {
        "codes": "ans(contexts=16, states=12, trellis=8, bypass=true)",
        "centroids": "raw",
    }
    points: ClassVar[int] = 2
    max_steps: ClassVar[int] = 32766
    max_centroids: ClassVar[int] = 16
    step: float = argument(above=0)
    states: int = argument(8, choices=TRELLIS_STATES)

    def quantize(
        self, values: np.ndarray, dtype: np.dtype, codes: np.ndarray, centroids: np.ndarray
    ) -> int:
        """Set codes and centroids; return how many centroids there are.

        -1 for wrong values.
        """
        scale = inverse_of(self.step / _PARTS, values.dtype, "trellis")
        every = max(values.size // SAMPLE, 1) if values.size >= MIN_ELEMENTS else 0
        return native.trellis_encode(values, scale, self.states, every, codes, centroids)

    def rounding(self, matrix: Matrix) -> Rounding | None:
        """Return the search for the best path, which goes on from column to column.

        Paths end at the column ahead, which is looked at but not rounded yet.
        """
        if not matrix.in_order:
            return None
        machines = np.zeros(_MACHINES, np.uint8)
        scale, half = inverse_of(self.step / _PARTS, np.dtype(np.float32), self.id), self.step / 2
        rows = matrix.columns.shape[1]
        codes, points = np.empty(rows, np.int16), np.empty(rows, np.int32)

        def round_column(_i: int, targets: np.ndarray, ahead: np.ndarray | None) -> np.ndarray:
            known = targets if ahead is None else np.concatenate((targets, ahead))
            if not native.trellis_continue(known, scale, self.states, machines, codes, points):
                raise NotRepresentable(f"trellis: too many steps of {self.step:g}")
            return (points * half).astype(np.float32)

        return round_column

    def look_up(self, codes: np.ndarray, lowest: int, table: np.ndarray, out: np.ndarray) -> None:
        """Set `out` to those of a table that codes stand for, each by its quantizer."""
        native.trellis_decode(codes, self.states, lowest, table, out)
