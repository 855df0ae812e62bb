"""The first-order change of the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensorcomp.selection.scores.measured import Measured


@dataclass(frozen=True)
class Taylor(Measured):
    """Score |w·g|, the mean over minibatches.

    That is: how much the loss changes if the weight goes, to first order.

    References
    ----------
    Molchanov, Tyree, Karras, Aila & Kautz 2017, "Pruning convolutional neural networks for resource
    efficient inference"; Molchanov, Mallya, Tyree, Frosio & Kautz 2019, "Importance estimation for
    neural network pruning".
    """

    id: ClassVar[str] = "taylor"
    statistic: ClassVar[str] = "taylor"
