"""The magnitude of a weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

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
