"""Layer-adaptive magnitude."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.selection.scores.base import Score


@dataclass(frozen=True)
class Lamp(Score):
    """Score w² over the sum of the squares of all weights of the tensor that are not smaller.

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
