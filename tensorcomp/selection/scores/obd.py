"""Optimal brain damage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.selection.scores.base import Score


@dataclass(frozen=True)
class OptimalBrainDamage(Score):
    """Score ½ · h · w², with the diagonal h of the loss's Hessian: the rise of the loss.

    h is the mean of the squared gradients of minibatches (the empirical Fisher information, which
    is near the Hessian where the model fits), or, from a training checkpoint, Adam's second moment,
    which is the same with a running mean.

    References
    ----------
    LeCun, Denker & Solla 1990, "Optimal brain damage"; Kingma & Ba 2015, "Adam".
    """

    id: ClassVar[str] = "obd"
    double: ClassVar[bool] = True
    statistic: ClassVar[str] = "fisher"

    def score(
        self, weights: np.ndarray, statistic: np.ndarray | None, *, name: str, start: int = 0
    ) -> np.ndarray:
        """Return the scores, float64: the squares of small weights are out of float32's range."""
        assert statistic is not None
        double = weights.astype(np.float64)
        scores: np.ndarray = double * statistic  # the square alone may be out of float64's range
        scores *= double
        scores *= 0.5
        return scores
