"""The magnitude of the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensorcomp.selection.scores.measured import Measured


@dataclass(frozen=True)
class Gradient(Measured):
    """Score |g|: the running mean of the gradient's magnitude over minibatches.

    Notes
    -----
    `calibrate` takes the plain mean over its minibatches, or an exponential one with ``decay``;
    `GradientHistory` keeps the same history in a training loop of one's own.

    References
    ----------
    Evci, Gale, Menick, Castro & Elsen 2020, "Rigging the lottery", grow connections by it.
    """

    id: ClassVar[str] = "gradient"
    statistic: ClassVar[str] = "gradient"
