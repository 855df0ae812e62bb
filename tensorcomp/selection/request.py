"""Describe what to prune of a stored checkpoint."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tensorcomp.errors import PruningError
from tensorcomp.planning.statistics import Statistics
from tensorcomp.selection.granularity import NM, Granularity, parse_granularity
from tensorcomp.selection.scores import parse_score
from tensorcomp.selection.scores.base import Score
from tensorcomp.selection.select import USUAL_FLOOR, Scope


@dataclass(frozen=True)
class Pruning:
    """Score, target and limits by which a checkpoint is pruned.

    Parameters
    ----------
    score : str or Score
        ``magnitude``, ``random(SEED)``, ``lamp``, or one that needs statistics.
    sparsity : float or mapping of str to float, optional
        The exact part of the selected weights that is pruned; or that of each tensor, by name, and
        these are then what is pruned. Not given for an ``nm`` granularity, nor beside another
        target.
    stats : path or Statistics, optional
        What ``tensorcomp calibrate`` measured. ``obd`` also takes Adam's state from the checkpoint.
    scope : {"global", "tensor", "row"} or callable, optional
        Among which weights the lowest are looked for; by default what is usual for the score,
        or ``tensor`` where several weights are pruned together.
    granularity : str or Granularity
        ``element``, ``row``, ``filter``, ``channel``, ``block(4, 4)``, ``nm(2, 4)``.
    where : str or sequence of str, optional
        Which tensors: roles, names, patterns of names, or ``all``. By default matrices and kernels
        of layers; never embeddings, norms, biases, nor the state of an optimizer.
    floor, ceiling : float
        The least and the greatest density of each tensor.
    max_rel_l2 : float, optional
        In place of a sparsity: as much of each tensor as keeps ‖x − x̂‖₂ / ‖x‖₂ within this.
    target_size : int, optional
        In place of a sparsity: as little as makes the compressed file this small, in bytes.
    repair : bool
        Whether weights that are kept make up for those that are pruned, by the second moments in
        `stats`.

    Raises
    ------
    PruningError
        If the score or the granularity is unknown, not exactly one target is given, or there are no
        statistics to repair by.
    """

    score: str | Score = "magnitude"
    sparsity: float | Mapping[str, float] | None = None
    stats: str | os.PathLike[str] | Statistics | None = None
    scope: Scope | None = None
    granularity: str | Granularity = "element"
    where: str | Sequence[str] | None = None
    floor: float = USUAL_FLOOR
    ceiling: float = 1.0
    max_rel_l2: float | None = None
    target_size: int | None = None
    repair: bool = False

    def __post_init__(self) -> None:
        parse_score(self.score)
        if self.repair and self.stats is None:
            raise PruningError(
                "expected statistics to repair by, got none; give stats=…, a file of tensorcomp "
                "calibrate --statistics second_moment,row_weight"
            )
        unit = parse_granularity(self.granularity)
        targets = ("sparsity", "max_rel_l2", "target_size")
        given = [name for name in targets if getattr(self, name) is not None]
        if len(given) > 1:
            raise PruningError(
                f"expected one target of pruning, got {' and '.join(given)}; give one of them"
            )
        if not given and not isinstance(unit, NM):
            raise PruningError(f"how much is to be pruned is not said: give {' or '.join(targets)}")

    @property
    def selectors(self) -> tuple[str, ...] | None:
        """The selectors of tensors; None for the usual ones."""
        if self.where is not None:
            return (self.where,) if isinstance(self.where, str) else tuple(self.where)
        return tuple(self.sparsity) if isinstance(self.sparsity, Mapping) else None
