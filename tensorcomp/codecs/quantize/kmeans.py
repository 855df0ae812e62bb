"""Scalar codebooks learned from the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.quantize import codebooks
from tensorcomp.codecs.strategy import Strategy


@dataclass(frozen=True)
class Kmeans(codebooks.CodebookQuantizer):
    """Replace each element by the nearest of k numbers, chosen by k-means.

    They are chosen for the least squared error.

    The chunks of a tensor share one codebook, learned from a sample of its rows; a tensor of one
    chunk holds its own. It is learned on a histogram: by Lloyd's iteration, begun for k up to 64 at
    the best cut of a coarser histogram, found by dynamic programming, and else where the density to
    the power of 1/3 says. Equal weights give equal codebooks on every machine. Where there are at
    most k distinct values, they are the codebook, and nothing is lost.

    Parts: ``codebook``, ascending float32 (float64 for float64 arrays), of at most k numbers, empty
    if it is shared; ``codes``, of the array's shape, uint8 for k up to 256 and uint16 above. What
    chunks share: the codebook, little-endian.

    Error: at most half the distance of the two neighbours in the codebook for an element between
    them, and rounding to the array's dtype; elements beyond its ends (outliers that the sample
    lacks) have more. The mean square for a Gaussian of variance 1 is about 2.72 / k**2: 0.01
    (20 dB) for 16 numbers.

    Parameters
    ----------
    k : int
        Numbers in the codebook, 2 to 65,536.

    Notes
    -----
    Cost: O(n + k) for the codes, and O(n) + O(k) to learn for k up to 1024; without the codes'
    coder 3 ns an element to encode, 2 ns more to learn (16 numbers, a million weights), 0.4 ns to
    decode. Above, learning sorts: 0.1 µs an element. Not for the smallest size at an error:
    `uniform` with an entropy coder needs fewer bits. It is for codebooks that stay codebooks, in a
    runtime that looks weights up.

    References
    ----------
    Lloyd 1982, "Least squares quantization in PCM"; Panter & Dite 1951, "Quantization distortion in
    pulse-count modulation with nonuniform spacing of levels"; best cuts: Wu 1991, "Optimal
    quantization by matrix searching"; of weights: Han, Mao & Dally 2016, "Deep Compression".
    """

    id: ClassVar[str] = "kmeans"
    elementwise: ClassVar[bool] = True
    off_wire: ClassVar[str] = "it learns a codebook for each tensor; take affine(4)"
    strategies: ClassVar[tuple[Strategy, ...]] = tuple(
        Strategy(f"k-means, {k} numbers", f"kmeans({k})", family="k-means")
        for k in (4, 8, 16, 64, 256)
    )
    k: int = argument(16, least=2, most=codebooks.MAX_CODES)

    def learn(self, values: np.ndarray) -> np.ndarray:
        """Return the numbers of the codebook, ascending."""
        return codebooks.learn_codebook(values, self.k)

    def nearest(self, values: np.ndarray, codebook: np.ndarray) -> np.ndarray:
        """Return the codes of the nearest numbers."""
        return codebooks.nearest(values, codebook, codebooks.code_dtype(self.k))
