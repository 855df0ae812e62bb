"""Which weights matter: one file a score, from magnitude to second derivatives."""

from __future__ import annotations

from tensorcomp.selection.scores.base import Score
from tensorcomp.selection.scores.gradient import Gradient
from tensorcomp.selection.scores.grasp import Grasp
from tensorcomp.selection.scores.lamp import Lamp
from tensorcomp.selection.scores.magnitude import Magnitude
from tensorcomp.selection.scores.obd import OptimalBrainDamage
from tensorcomp.selection.scores.random import Random
from tensorcomp.selection.scores.snip import Snip
from tensorcomp.selection.scores.synflow import SynFlow
from tensorcomp.selection.scores.taylor import Taylor
from tensorcomp.selection.scores.wanda import Wanda
from tensorcomp.selection.text import parse_call

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
