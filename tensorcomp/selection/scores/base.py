"""The base class of scores."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from tensorcomp.selection.text import Named


class Score(Named):
    """Base of the scores, frozen dataclasses; higher means keep.

    Attributes
    ----------
    statistic : str, optional
        What must have been measured on the model beside its weights, see `statistics`.
    elementwise : bool
        Whether a weight's score depends on its own values alone, so that a tensor may be scored
        run by run.
    scope : str
        Among which weights the lowest are usually looked for: ``global``, ``tensor`` or ``row``.
    rounds : int
        In how many rounds weights are usually scored and selected anew.
    double : bool
        Whether scores are float64 even where weights and statistic are narrower.
    """

    statistic: ClassVar[str | None] = None
    elementwise: ClassVar[bool] = True
    scope: ClassVar[str] = "global"
    rounds: ClassVar[int] = 1
    double: ClassVar[bool] = False

    @abstractmethod
    def score(
        self, weights: np.ndarray, statistic: np.ndarray | None, *, name: str, start: int = 0
    ) -> np.ndarray:
        """Compute a tensor's scores.

        They are float64 if weights or statistic are, or `double` says so, otherwise float32.

        Parameters
        ----------
        weights : numpy.ndarray
            A whole tensor; a flat run of it, if `elementwise`. Of any float type.
        statistic : numpy.ndarray or None
            What was measured, for the same elements.
        name : str
            The tensor's name.
        start : int
            The flat index of the first element.
        """


def widened(weights: np.ndarray) -> np.ndarray:
    """Return weights as float32, exactly; float64 where they are that."""
    if weights.dtype == np.float32 or weights.dtype == np.float64:
        return weights
    return weights.astype(np.float32)
