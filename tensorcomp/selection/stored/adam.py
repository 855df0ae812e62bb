"""Score by Adam's second moment in a training checkpoint.

The moment is a running mean of squared gradients; divided by 1 − β₂ᵗ, t the step, it is without
bias (Kingma & Ba 2015, "Adam: a method for stochastic optimization"). Which moment is whose follows
from the parameters' names where the checkpoint holds them, else from their order (`adam_state`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tensorcomp._formatting import shown
from tensorcomp.checkpoints.base import Checkpoint
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.errors import PruningError
from tensorcomp.planning.statistics import Statistics
from tensorcomp.selection.scores.base import widened
from tensorcomp.selection.scores.measured import OptimalBrainDamage
from tensorcomp.selection.stored.adam_state import Moment, moments_of
from tensorcomp.selection.stored.tensors import Chosen


@dataclass(frozen=True)
class StoredDamage(OptimalBrainDamage):
    """Score ½ · h · w², h from Adam's stored moments.

    Parameters
    ----------
    factors : mapping of str to float
        1 / (1 − β₂ᵗ) of each tensor. The moments stay views of the file.
    """

    factors: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the score's text."""
        return self.id

    def score(
        self, weights: np.ndarray, statistic: np.ndarray | None, *, name: str, start: int = 0
    ) -> np.ndarray:
        """Return the scores, float64."""
        assert statistic is not None
        scores = super().score(weights, widened(statistic), name=name, start=start)
        scores *= self.factors[name]
        return scores


def second_moments(
    sources: Sequence[Checkpoint], chosen: Sequence[Chosen], *, all_of_them: bool
) -> tuple[StoredDamage, Statistics]:
    """Return score and statistics from the optimizer that is stored with tensors.

    Parameters
    ----------
    sources : sequence of Checkpoint
        All files of the checkpoint.
    chosen : sequence of Chosen
    all_of_them : bool
        Whether every tensor must have a moment; else those without are left out.

    Raises
    ------
    PruningError
        If there is no Adam's state, a moment is missing, or it is ambiguous whose a moment is.
    """
    moments = moments_of(sources, chosen)
    missing = [item for item in chosen if item.key not in moments]
    if (missing and all_of_them) or not moments:
        first = (missing or list(chosen))[0]
        raise PruningError(
            f"tensor {shown(first.key)} has no second moment of Adam's in the checkpoint; "
            "leave it out by 'where' (--prune-where), or give statistics"
        )
    arrays = {item.key: _read(item, moments[item.key]) for item in chosen if item.key in moments}
    factors = {key: _factor(key, moments[key]) for key in arrays}
    return StoredDamage(factors), Statistics({OptimalBrainDamage.statistic: arrays})


def _read(item: Chosen, moment: Moment) -> np.ndarray:
    dtype = numpy_dtype(moment.info.dtype)
    if moment.info.shape != item.info.shape or dtype is None:
        raise PruningError(
            f"tensor {shown(item.key)} has the shape {list(item.info.shape)}, its second moment "
            f"{moment.info.dtype} {list(moment.info.shape)}: it is of another model"
        )
    return moment.source.read(moment.info.name).view(dtype).reshape(moment.info.shape)


def _factor(key: str, moment: Moment) -> float:
    if moment.step is None:
        return 1.0
    kept = 1 - moment.beta**moment.step if 0 <= moment.beta < 1 and moment.step >= 1 else math.nan
    if not kept > 0:
        raise PruningError(
            f"tensor {key!r}: Adam's step is {moment.step:g} and its β₂ {moment.beta:g}, with "
            "which there is no second moment"
        )
    return 1 / kept
