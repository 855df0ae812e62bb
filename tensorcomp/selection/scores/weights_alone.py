"""Score weights by nothing but themselves, or at random."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import xxhash

from tensorcomp.codecs.arguments import argument
from tensorcomp.kernels import native
from tensorcomp.selection.scores.base import Score, widened


@dataclass(frozen=True)
class Magnitude(Score):
    """Score |w|.

    Notes
    -----
    Needs nothing but the weights. Best after training, with fine-tuning behind it.

    References
    ----------
    Han, Pool, Tran & Dally 2015, "Learning both weights and connections for efficient neural
    networks".
    """

    id: ClassVar[str] = "magnitude"

    def score(
        self, weights: np.ndarray, statistic: np.ndarray | None, *, name: str, start: int = 0
    ) -> np.ndarray:
        """Return the magnitudes."""
        magnitudes: np.ndarray = np.abs(widened(weights))
        return magnitudes


@dataclass(frozen=True)
class Lamp(Score):
    """Score w² over the sum of squares of all weights that are not smaller.

    Within a tensor the order is that of magnitudes; between tensors it says how many each loses
    under a global sparsity. The largest weight of each tensor has the score 1. Of equal magnitudes
    those of higher index count as larger, as in selection.

    Notes
    -----
    Cost: a sort of each tensor, and 8 bytes a weight, which are kept until weights are selected.

    References
    ----------
    Lee, Park, Mo, Ahn & Shin 2021, "Layer-adaptive sparsity for the magnitude-based pruning".
    """

    id: ClassVar[str] = "lamp"
    double: ClassVar[bool] = True
    elementwise: ClassVar[bool] = False

    def score(
        self, weights: np.ndarray, statistic: np.ndarray | None, *, name: str, start: int = 0
    ) -> np.ndarray:
        """Return the scores, float64; 0 in a tensor of zeros."""
        squares = weights.reshape(-1).astype(np.float64)
        largest = float(np.abs(squares).max(initial=0.0))
        if 0 < largest < np.inf:  # near 1, where squares are in range
            np.ldexp(squares, -math.frexp(largest)[1], out=squares)
        squares *= squares
        order = np.argsort(squares, kind="stable")
        ascending = squares[order]
        at_least = np.cumsum(ascending[::-1])[::-1]
        scores = np.zeros_like(squares)
        np.divide(ascending, at_least, out=at_least, where=at_least > 0)
        scores[order] = at_least
        return scores.reshape(weights.shape)


@dataclass(frozen=True)
class Random(Score):
    """Score by a number drawn uniformly from [0, 1).

    It depends on the seed, the tensor's name and the weight's index only (a counter-based
    generator), so it is the same on every machine and in every run, and touches no global state.

    Parameters
    ----------
    seed : int
        From 0 to 2⁶³ − 1.
    """

    id: ClassVar[str] = "random"
    double: ClassVar[bool] = True
    seed: int = argument(0, least=0, most=(1 << 63) - 1)

    def score(
        self, weights: np.ndarray, statistic: np.ndarray | None, *, name: str, start: int = 0
    ) -> np.ndarray:
        """Return the numbers, float64."""
        state = xxhash.xxh3_64_intdigest(name.encode("utf-8"), seed=self.seed)
        numbers = np.empty(weights.size, np.float64)
        native.scores_draw_numbers(state, start, numbers)
        return numbers.reshape(weights.shape)
