"""Which weights matter: one file a score, from magnitude to second derivatives."""

from __future__ import annotations

from tensorcomp.pruning.scores.base import Score
from tensorcomp.pruning.scores.gradient import Gradient
from tensorcomp.pruning.scores.grasp import Grasp
from tensorcomp.pruning.scores.lamp import Lamp
from tensorcomp.pruning.scores.magnitude import Magnitude
from tensorcomp.pruning.scores.obd import OptimalBrainDamage
from tensorcomp.pruning.scores.random import Random
from tensorcomp.pruning.scores.snip import Snip
from tensorcomp.pruning.scores.synflow import SynFlow
from tensorcomp.pruning.scores.taylor import Taylor
from tensorcomp.pruning.scores.wanda import Wanda
from tensorcomp.pruning.text import parse_call

SCORES: dict[str, type[Score]] = {
    kind.id: kind
    for kind in (
        Magnitude,
        Random,
        Gradient,
        Taylor,
        Snip,
        Grasp,
        SynFlow,
        Wanda,
        Lamp,
        OptimalBrainDamage,
    )
}

__all__ = [
    "SCORES",
    "Gradient",
    "Grasp",
    "Lamp",
    "Magnitude",
    "OptimalBrainDamage",
    "Random",
    "Score",
    "Snip",
    "SynFlow",
    "Taylor",
    "Wanda",
    "parse_score",
]


def parse_score(text: str | Score) -> Score:
    """Return the score of a text such as ``snip`` or ``random(7)``.

    Raises
    ------
    PruningError
        If there is none.
    """
    return text if isinstance(text, Score) else parse_call(text, SCORES, "score")
