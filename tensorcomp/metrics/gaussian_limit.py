"""The rate–distortion limit R(D) of Gaussian weights of unlike variances."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

FORMULA = "R(D) = Σ nᵢ ½ log₂(σᵢ² / min(θ, σᵢ²)) / Σ nᵢ, D = Σ nᵢ min(θ, σᵢ²)"


@dataclass(frozen=True)
class Limit:
    """Fewest bits per weight for a signal-to-noise ratio of all weights.

    Of nᵢ weights, each is an independent Gaussian of variance σᵢ². The squared error D of all
    together takes least bits if it is spread by reverse water-filling: weights of variance σᵢ² have
    the error min(θ, σᵢ²), one θ for all, and take ½ log₂(σᵢ² / that) bits each. No way to spread
    the error over such weights needs fewer bits, equal ratios on all tensors included. Weights of
    another distribution may.

    Parameters
    ----------
    weights : tuple of float
        nᵢ.
    variances : tuple of float
        σᵢ².
    power : float
        Sum of squares of all weights, which the ratio relates D to.
    other_weights, other_bytes : float
        Of tensors that stay lossless and take so many bytes at any ratio.

    References
    ----------
    Cover & Thomas 2006, "Elements of Information Theory", section 10.3.3.
    """

    weights: tuple[float, ...]
    variances: tuple[float, ...]
    power: float
    other_weights: float = 0.0
    other_bytes: float = 0.0

    def rate(self, snr_db: float) -> float:
        """Return bits per weight, the other tensors' included.

        Parameters
        ----------
        snr_db : float
            10 log₁₀(power / D).
        """
        counts, variances = self._ascending
        level = self._level(self.power * 10 ** (-snr_db / 10))
        wet = variances > level
        bits = 0.0
        if level > 0:
            bits = float(counts[wet] @ (0.5 * np.log2(variances[wet] / level)))
        elif wet.any():
            return math.inf
        return (bits + self.fixed_bits) / self.all_weights

    @property
    def fixed_bits(self) -> float:
        """Bits of the other tensors."""
        return 8 * self.other_bytes

    @functools.cached_property
    def all_weights(self) -> float:
        """Weights of all tensors."""
        return sum(self.weights) + self.other_weights

    def _level(self, distortion: float) -> float:
        """Return θ, at which the error of all weights together is `distortion`."""
        counts, variances = self._ascending
        below = np.cumsum(counts * variances) - counts * variances  # of those under water
        above = np.cumsum(counts[::-1])[::-1]
        levels = (distortion - below) / above
        fits = np.flatnonzero(levels <= variances)
        return max(float(levels[fits[0]]), 0.0) if fits.size else math.inf

    @functools.cached_property
    def _ascending(self) -> tuple[np.ndarray, np.ndarray]:
        order = np.argsort(self.variances)
        return np.array(self.weights)[order], np.array(self.variances)[order]
