"""Scores that calibration has measured whole: nothing is left to compute from the weights."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tensorcomp.selection.scores.base import Score, widened


class Measured(Score):
    """Base of the scores that are a statistic as it is."""

    statistic: ClassVar[str]

    def score(
        self, weights: np.ndarray, statistic: np.ndarray | None, *, name: str, start: int = 0
    ) -> np.ndarray:
        """Return what was measured."""
        assert statistic is not None
        return widened(statistic)
