"""Gradient signal preservation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensorcomp.selection.scores.measured import Measured


@dataclass(frozen=True)
class Grasp(Measured):
    """Score w ⊙ Hg.

    That is: what the weight adds to the squared norm of the gradient, to first order, halved.

    Notes
    -----
    H and g are the Hessian and the gradient of the loss with logits divided by a temperature, 200
    by default. Scores may be negative: such weights hinder the flow of the gradient. The paper
    removes the highest −w ⊙ Hg, which is the same. Made for networks before training.

    References
    ----------
    Wang, Zhang & Grosse 2020, "Picking winning tickets before training by preserving gradient
    flow".
    """

    id: ClassVar[str] = "grasp"
    statistic: ClassVar[str] = "grasp"
