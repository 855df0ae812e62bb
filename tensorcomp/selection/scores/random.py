"""Numbers drawn at random: the control that every other score has to beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import xxhash

from tensorcomp.kernels import native
from tensorcomp.selection.scores.base import Score


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
    seed: int = 0

    def __post_init__(self) -> None:
        if type(self.seed) is not int or not 0 <= self.seed < 1 << 63:
            raise ValueError(f"seed is an integer from 0 to 2**63 - 1; got {self.seed!r}")

    def score(
        self, weights: np.ndarray, statistic: np.ndarray | None, *, name: str, start: int = 0
    ) -> np.ndarray:
        """Return the numbers, float64."""
        state = xxhash.xxh3_64_intdigest(name.encode("utf-8"), seed=self.seed)
        numbers = np.empty(weights.size, np.float64)
        native.scores_draw_numbers(state, start, numbers)
        return numbers.reshape(weights.shape)
