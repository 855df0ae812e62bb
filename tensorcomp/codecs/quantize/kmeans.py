"""Scalar codebooks learned from the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import ArraySpec, Transform
from tensorcomp.codecs.quantize import codebooks
from tensorcomp.codecs.rounding import widened, work_dtype
from tensorcomp.codecs.strategy import Strategy


@dataclass(frozen=True)
class Kmeans(Transform):
    """Replace each element by the nearest of k numbers, chosen for the least squared error.

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
    lossless: ClassVar[bool] = False
    elementwise: ClassVar[bool] = True
    off_wire: ClassVar[str] = "it learns a codebook for each tensor; take affine(4)"
    strategies: ClassVar[tuple[Strategy, ...]] = (
        *(
            Strategy(f"k-means, {k} numbers", f"kmeans({k})", family="k-means")
            for k in (4, 8, 16, 64, 256)
        ),
    )
    default_parts: ClassVar[Mapping[str, str]] = {"codebook": "raw", "codes": "ans"}
    k: int = argument(16, least=2, most=codebooks.MAX_CODES)

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the spec of a codebook of so many numbers as are needed, and that of the codes."""
        return {
            "codebook": ArraySpec((-1,), work_dtype(spec.dtype)),
            "codes": ArraySpec(spec.shape, codebooks.code_dtype(self.k)),
        }

    def shares(self, spec: ArraySpec) -> bool:
        """Return true: chunks share a codebook."""
        return True

    def fit(self, array: np.ndarray) -> bytes:
        """Return the codebook.

        Raises
        ------
        NotRepresentable
            If the array holds no finite floats.
        """
        return codebooks.learn_codebook(widened(array, "kmeans"), self.k).tobytes()

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return codebook and codes.

        Raises
        ------
        NotRepresentable
            If the array holds no finite floats.
        """
        values = widened(array, "kmeans")
        own = np.empty(0, values.dtype)
        if shared:
            codebook = codebooks.unpack_codebook(shared, array.dtype, self.k, "kmeans")
        else:
            codebook = own = codebooks.learn_codebook(values, self.k)
        return {
            "codebook": own,
            "codes": codebooks.nearest(values, codebook, codebooks.code_dtype(self.k)),
        }

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Look each code up."""
        codebook = parts["codebook"]
        if shared:
            codebook = codebooks.unpack_codebook(shared, out.dtype, self.k, "kmeans")
        codebooks.look_up(parts["codes"], codebook, out, "kmeans")
