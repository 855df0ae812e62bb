"""Connection sensitivity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensorcomp.selection.scores.measured import Measured


@dataclass(frozen=True)
class Snip(Measured):
    """Score |g ⊙ w| with the gradient g of the loss over all minibatches together.

    Notes
    -----
    Made for networks before training. Unlike `taylor`, the gradients of several minibatches are
    added up before the magnitude is taken.

    References
    ----------
    Lee, Ajanthan & Torr 2019, "SNIP: single-shot network pruning based on connection sensitivity".
    """

    id: ClassVar[str] = "snip"
    statistic: ClassVar[str] = "snip"
