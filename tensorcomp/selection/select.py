"""Select the weights to prune: exactly k, the lowest by (score, index).

Of n weights, k = round(sparsity · n) are pruned, ties to even: those whose scores are lowest, of
equal ones those that come first. Tensors follow each other in the order of their names, so the
choice does not depend on how they were listed, nor on the machine or the number of threads.

Nothing of the size of the model is kept: a `Selection` knows thresholds, and makes the mask of a
tensor when it is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from tensorcomp._threads import Workers, available_threads
from tensorcomp.errors import PruningError
from tensorcomp.selection.checks import require_fraction
from tensorcomp.selection.granularity import NM, Element, Granularity, parse_granularity
from tensorcomp.selection.groups import (
    Kept,
    limits_of,
    require_reachable,
    select_elements,
    select_in_groups_of_neighbours,
    select_in_rows,
    select_units,
)
from tensorcomp.selection.streaming_scores import StreamingScores, given_scores

Scope: TypeAlias = "str | Callable[[str], Hashable]"
SCOPES = ("global", "tensor", "row")

USUAL_FLOOR = 0.001

_WORTH_THREADS = 1 << 21  # weights; fewer are done before a thread has started


@dataclass(frozen=True)
class Selection:
    """The weights of each tensor that are kept.

    Attributes
    ----------
    granularity : Granularity
    sizes : mapping of str to int
        Weights of each tensor, in the order of names.
    pruned : mapping of str to int
        How many of them are pruned.
    mask : callable
        Returns the mask of a tensor, by its name: bool, true where weights are kept.
    skipped : mapping of str to str
        Why tensors are left as they are: they lack a statistic, or do not suit the granularity.
    """

    granularity: Granularity
    sizes: Mapping[str, int]
    pruned: Mapping[str, int]
    mask: Callable[[str], np.ndarray] = field(repr=False)
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The tensors."""
        return tuple(self.sizes)

    @property
    def sparsity(self) -> float:
        """The exact part of the weights that is pruned."""
        return sum(self.pruned.values()) / max(sum(self.sizes.values()), 1)


def select(
    scores: StreamingScores | Mapping[str, np.ndarray],
    sparsity: float | Mapping[str, float] | None = None,
    *,
    scope: Scope | None = None,
    granularity: str | Granularity = "element",
    floor: float = USUAL_FLOOR,
    ceiling: float = 1.0,
    previous: Mapping[str, np.ndarray] | None = None,
    threads: int | None = None,
) -> Selection:
    """Select the weights to prune.

    Parameters
    ----------
    scores : StreamingScores or mapping of str to numpy.ndarray
        Higher = keep.
    sparsity : float or mapping of str to float
        The part of all weights that is pruned, from 0 to 1; or that of each tensor. Not given where
        the granularity is a pattern (`NM`), which says it.
    scope : {"global", "tensor", "row"} or callable, optional
        Among which weights the lowest are looked for: all, those of a tensor, those of a row (slice
        of the first axis), or those of all tensors for which a function of the name gives the same.
        By default what is usual for the score, ``row`` for Wanda, else ``global``; where several
        weights are pruned together ``tensor``.
    granularity : Granularity or str
        What is pruned together. Of units of several weights, as many are pruned as come nearest to
        k weights.
    floor : float
        The least density of each tensor, so that none is cut off; more than 0 keeps at least one
        unit of each. 0 allows all.
    ceiling : float
        The greatest density of each tensor.
    previous : mapping of str to numpy.ndarray, optional
        Masks, bool: what they drop is among what is pruned.
    threads : int, optional
        All available processors by default. The selection does not depend on it.

    Raises
    ------
    PruningError
        If scores are no arrays of floats, one is NaN, no shape suits the granularity, or no
        selection obeys.
    """
    if not isinstance(scores, StreamingScores):
        scores = given_scores(scores)
    if not scores.names:
        raise PruningError("there is no tensor to prune")
    unit = parse_granularity(granularity)
    if previous is not None:
        scores = scores.after(previous)
    scores = scores.suited(unit)
    if require_fraction("floor", floor) > require_fraction("ceiling", ceiling):
        raise PruningError(f"the floor {floor} is above the ceiling {ceiling}")
    if isinstance(unit, NM):
        return _pattern(scores, unit, sparsity, scope, floor, ceiling)
    fractions = _fractions(scores, sparsity)
    if scope is None:
        # Sums over whole units follow their size more than their worth: not comparable by tensor.
        usual = scores.score.scope if isinstance(unit, Element) else "tensor"
        scope = "tensor" if isinstance(sparsity, Mapping) and usual == "global" else usual
    if isinstance(sparsity, Mapping) and scope not in ("tensor", "row"):
        raise PruningError("a sparsity for each tensor goes with the scope tensor or row")
    limits = {name: limits_of(scores, name, unit, floor, ceiling) for name in scores.names}
    if scope == "row":
        if not isinstance(unit, Element):
            raise PruningError(f"the scope row is for single weights, not for {unit}")
        return _selection(scores, unit, select_in_rows(scores, fractions, limits))
    kept: dict[str, Kept] = {}
    few = sum(scores.sizes.values()) < _WORTH_THREADS
    with Workers(1 if few else threads or available_threads()) as workers:
        for names in _groups(scores, scope):
            k = round(fractions[names[0]] * sum(scores.sizes[name] for name in names))
            largest = max(math.prod(unit.tile(scores.shapes[name], name)) for name in names)
            require_reachable(scores, names, k, limits, slack=largest // 2)
            if isinstance(unit, Element):
                kept.update(select_elements(scores, names, k, limits, workers))
            else:
                kept.update(select_units(scores, names, k, limits, unit))
    return _selection(scores, unit, kept)


def _selection(scores: StreamingScores, unit: Granularity, kept: Mapping[str, Kept]) -> Selection:
    def mask(name: str) -> np.ndarray:
        found, earlier = kept[name].mask().reshape(scores.shapes[name]), scores.previous.get(name)
        return found if earlier is None else found & earlier

    counts = {name: kept[name].pruned for name in scores.names}
    return Selection(unit, dict(scores.sizes), counts, mask, scores.skipped)


def _pattern(
    scores: StreamingScores, unit: NM, sparsity: object, scope: object, floor: float, ceiling: float
) -> Selection:
    """Select by a pattern, which has a sparsity of its own."""
    if sparsity not in (None, unit.sparsity) or scope is not None:
        raise PruningError(
            f"{unit} says by itself which part is pruned ({unit.sparsity:g}), and where; give no "
            "other sparsity and no scope"
        )
    kept = unit.keep / unit.group
    if not floor <= kept <= ceiling:
        limit = "floor" if kept < floor else "ceiling"
        raise PruningError(
            f"{unit} keeps {kept:g} of each tensor, not {floor:g} to {ceiling:g}; change {limit}=… "
            "or the pattern"
        )
    return _selection(scores, unit, select_in_groups_of_neighbours(scores, unit))


def _fractions(
    scores: StreamingScores, sparsity: float | Mapping[str, float] | None
) -> dict[str, float]:
    """Return the sparsity of each tensor."""
    if sparsity is None:
        raise PruningError("how much is to be pruned is not said; give a sparsity from 0 to 1")
    if not isinstance(sparsity, Mapping):
        require_fraction("sparsity", sparsity)
        return dict.fromkeys(scores.names, sparsity)
    for name in scores.skipped.keys() & sparsity.keys():
        raise PruningError(f"tensor {name!r} cannot be pruned: {scores.skipped[name]}")
    unknown, missing = set(sparsity) - set(scores.names), set(scores.names) - set(sparsity)
    if unknown or missing:
        which = f"no tensor is called {min(unknown)!r}" if unknown else f"none for {min(missing)!r}"
        raise PruningError(f"the sparsities of single tensors do not fit: {which}")
    for name, part in sparsity.items():
        require_fraction(f"the sparsity of {name!r}", part)
    return dict(sparsity)


def _groups(scores: StreamingScores, scope: Scope) -> list[list[str]]:
    """Group the tensors whose weights compete with each other."""
    usual: dict[str, Callable[[str], Hashable]]
    usual = {"global": lambda name: None, "tensor": lambda name: name}
    key = scope if callable(scope) else usual.get(str(scope))
    if key is None:
        raise PruningError(
            f"expected scope to be one of {', '.join(SCOPES)} or a function, got {scope!r}"
        )
    groups: dict[Hashable, list[str]] = {}
    for name in scores.names:
        groups.setdefault(key(name), []).append(name)
    return list(groups.values())
