"""Synaptic flow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensorcomp.selection.scores.measured import Measured


@dataclass(frozen=True)
class SynFlow(Measured):
    """Score |w| · ∂R/∂|w|.

    That is where R sums the outputs of the network of magnitudes for an input of ones.

    Notes
    -----
    Needs no data, but the model. Scored again in many rounds, each of which prunes a little
    (``rounds=100``), it never cuts a layer off before all others are as thin; in one round it may.

    References
    ----------
    Tanaka, Kunin, Yamins & Ganguli 2020, "Pruning neural networks without any data by iteratively
    conserving synaptic flow".
    """

    id: ClassVar[str] = "synflow"
    statistic: ClassVar[str] = "synflow"
    rounds: ClassVar[int] = 100
