"""Weights and activations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.selection.scores.base import Score, widened


@dataclass(frozen=True)
class Wanda(Score):
    """Score |W| · ‖X‖₂, with the norm of the input that the weight reads, over all samples.

    Compared within each row: among the weights of one output.

    Notes
    -----
    For one shot without any training, above all of language models.

    References
    ----------
    Sun, Liu, Bair & Kolter 2024, "A simple and effective pruning approach for large language
    models".
    """

    id: ClassVar[str] = "wanda"
    statistic: ClassVar[str] = "input_norm"
    scope: ClassVar[str] = "row"

    def score(
        self, weights: np.ndarray, statistic: np.ndarray | None, *, name: str, start: int = 0
    ) -> np.ndarray:
        """Return the scores."""
        assert statistic is not None
        scores: np.ndarray = np.abs(widened(weights)) * statistic
        return scores
