"""Scores: how much each weight matters, from magnitude to second derivatives."""

from __future__ import annotations

from tensorcomp.selection.scores.base import Score as Score
from tensorcomp.selection.scores.measured import (
    Gradient,
    Grasp,
    OptimalBrainDamage,
    OptimalBrainSurgeon,
    Snip,
    SynFlow,
    Taylor,
    Wanda,
)
from tensorcomp.selection.scores.weights_alone import Lamp, Magnitude, Random
from tensorcomp.selection.text import parse_named

_MEASURED = (Gradient, Taylor, Snip, Grasp, SynFlow, Wanda, OptimalBrainSurgeon)
SCORES: dict[str, type[Score]] = {
    kind.id: kind for kind in (Magnitude, Random, *_MEASURED, Lamp, OptimalBrainDamage)
}


def parse_score(text: str | Score) -> Score:
    """Return the score of a text such as ``snip`` or ``random(7)``.

    Raises
    ------
    PruningError
        If there is none.
    """
    return text if isinstance(text, Score) else parse_named(text, SCORES, "score")
