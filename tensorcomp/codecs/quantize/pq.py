"""Codebooks of short vectors: product quantization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.lowrank.blas import one_thread
from tensorcomp.codecs.quantize import codebooks
from tensorcomp.codecs.quantize.groups import Groups
from tensorcomp.codecs.strategy import Strategy
from tensorcomp.errors import NotRepresentable, PlanError, needing
from tensorcomp.kernels import native

_SAMPLE = 1 << 16  # vectors to learn from, or as many for each of the codebook's
_SAMPLE_EACH = 8
_BATCH = 4096
_PASSES = 2
_REFINEMENTS = 8  # Lloyd's iterations on the whole sample; each pass takes longer than two


@dataclass(frozen=True)
class Pq(codebooks.CodebookQuantizer):
    """Replace each run of `width` elements of a row by the nearest of k vectors.

    The vectors are learned from evenly spaced runs by scikit-learn's MiniBatchKMeans and some
    iterations of Lloyd's, and shared by the chunks of a tensor; a tensor of one chunk holds its
    own. Where there are at most k distinct runs, they are the codebook, and nothing is lost.

    Parts: ``codebook``, float32 (float64 for float64 arrays), the vectors one after the other in
    lexicographic order, empty if it is shared; ``codes``, (rows, row / width), uint8 for k up to
    256 and uint16 above. What chunks share: the codebook, little-endian.

    Error: that of the nearest vector, which no formula bounds; the mean square for a Gaussian is
    that of `kmeans` with k**(1 / width) numbers, less 0.3 to 1.2 dB. Rounding to the array's dtype
    comes on top.

    Parameters
    ----------
    k : int
        Vectors in the codebook, 2 to 65,536.
    width : int
        Elements of a vector, 1 to 256. Rows of another multiple are refused.

    Notes
    -----
    Cost: O(n k), 30 ns an element for 256 vectors of 4, and O(k) to learn: tenths of a second for
    256, seconds for 4096; 0.6 ns an element to decode. Only learning needs scikit-learn; equal
    weights give equal codebooks with an equal version of it. Not for the smallest size at an error:
    `uniform` with an entropy coder has less error at equal size, without a codebook.

    References
    ----------
    Jégou, Douze & Schmid 2011, "Product Quantization for Nearest Neighbor Search"; of weights: Gong
    et al. 2014, "Compressing Deep Convolutional Networks using Vector Quantization"; Sculley 2010,
    "Web-Scale K-Means Clustering".
    """

    id: ClassVar[str] = "pq"
    off_wire: ClassVar[str] = "it learns a codebook for each tensor, in tenths of a second"
    strategies: ClassVar[tuple[Strategy, ...]] = (
        Strategy("vectors of 4, 256 means", "pq(256, 4)", needs="sklearn"),
    )
    k: int = argument(256, least=2, most=codebooks.MAX_CODES)
    width: int = argument(4, least=1, most=256)

    def codes_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return (rows, vectors of a row)."""
        rows = Groups.of(shape, -1)
        return rows.rows, rows.columns // self.width

    def _vectors(self, values: np.ndarray) -> np.ndarray:
        columns = Groups.of(values.shape, -1).columns
        if columns % self.width:
            raise NotRepresentable(f"pq: {self.width} does not divide rows of {columns}")
        return values.reshape(-1, self.width)

    def learn(self, values: np.ndarray) -> np.ndarray:
        """Return at most k distinct vectors in lexicographic order.

        Raises
        ------
        PlanError
            If scikit-learn is not installed.
        """
        vectors = self._vectors(values)
        if len(np.unique(vectors[: self.k + 1], axis=0)) <= self.k:  # usually not
            distinct = np.unique(vectors, axis=0)
            if len(distinct) <= self.k:
                return distinct.reshape(-1)
        sample = vectors[:: max(1, len(vectors) // max(_SAMPLE, _SAMPLE_EACH * self.k))]
        exponent = _exponent(sample)
        with needing("cluster", PlanError, "pq learns by scikit-learn"):
            from sklearn.cluster import MiniBatchKMeans
        passes = {"batch_size": _BATCH, "max_iter": _PASSES, "max_no_improvement": None}
        settings = {"random_state": 0, "n_init": 1, "compute_labels": False, **passes}
        learner = MiniBatchKMeans(min(self.k, len(sample)), **settings)
        scaled = np.ldexp(sample, -exponent).astype(np.float32)
        with one_thread("openmp"):  # ours work on chunks
            centers = learner.fit(scaled).cluster_centers_
        for _ in range(_REFINEMENTS):
            centers = _means(scaled, centers)
        scaled_back = codebooks.times_power(centers.astype(vectors.dtype), exponent)
        return np.unique(scaled_back, axis=0).reshape(-1)

    def nearest(self, values: np.ndarray, codebook: np.ndarray) -> np.ndarray:
        """Return the codes of the nearest vectors."""
        dtype = codebooks.code_dtype(self.k)
        return _nearest(self._vectors(values), codebook.reshape(-1, self.width), dtype)

    def look_up(self, codes: np.ndarray, table: np.ndarray, out: np.ndarray) -> None:
        """Set words to the vectors of a table that codes stand for."""
        vectors, to = (words.reshape(-1, self.width) for words in (table, out))
        np.take(vectors, codes, axis=0, out=to)


def _exponent(values: np.ndarray) -> int:
    """Return the power of two above all magnitudes, by which they are divided."""
    return int(np.frexp(max(values.max(), -values.min()))[1]) if values.size else 0


def _nearest(vectors: np.ndarray, codebook: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the place of the vector nearest to each, computed where no square overflows."""
    codes = np.empty(len(vectors), dtype)
    if codes.size == 0:
        return codes
    exponent = max(_exponent(vectors), _exponent(codebook))
    columns = np.ascontiguousarray(np.ldexp(codebook, -exponent).T)
    native.linear_nearest(np.ldexp(vectors, -exponent), columns, codes)
    return codes


def _means(vectors: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Return the means of the vectors nearest to each center; the center where there are none."""
    codes = _nearest(vectors, centers, np.dtype("<u2"))
    counts = np.bincount(codes, minlength=len(centers))
    columns = [np.bincount(codes, column, len(centers)) for column in vectors.T]
    means = np.stack(columns, 1) / np.maximum(counts, 1)[:, None]
    return np.where(counts[:, None] > 0, means, centers).astype(centers.dtype)
