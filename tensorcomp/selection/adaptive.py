"""Raise the sparsity of each tensor to an error budget or a file size.

Needs no torch, so that stored checkpoints are pruned by it too; a validation loss is the limit in
`tensorcomp.pruning.search`, which runs a model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from tensorcomp.errors import PruningError
from tensorcomp.metrics.distortion import measure
from tensorcomp.selection.checks import pruned, require_fraction
from tensorcomp.selection.error_curve import ErrorCurve, bisect, most_units, most_within
from tensorcomp.selection.granularity import NM, Element, Granularity, parse_granularity
from tensorcomp.selection.groups import limits_of
from tensorcomp.selection.select import USUAL_FLOOR, Selection, select
from tensorcomp.selection.streaming_scores import StreamingScores

_ROUNDING = 1e-10  # relative; far more than sums of squares in float64 differ by
_EVALUATIONS = 16
_CLOSE = 0.995  # of a size: enough of it is used


@dataclass(frozen=True)
class PrunableTensor:
    """How much of a tensor may be pruned, in its units, and how it is selected.

    Parameters
    ----------
    scores : StreamingScores
        Of this tensor alone.
    name : str
    unit : Granularity
    floor, ceiling : float
        The least and the greatest density.
    weights : int
        How many a unit has.
    least, most : int
        The fewest and the most units that may be pruned.
    """

    scores: StreamingScores
    name: str
    unit: Granularity
    floor: float
    ceiling: float
    weights: int
    least: int
    most: int

    @property
    def units(self) -> int:
        """How many there are."""
        return self.scores.sizes[self.name] // self.weights

    def curve(self) -> ErrorCurve:
        """Return the error by how many units are pruned."""
        return ErrorCurve.of(self.scores, self.name, self.unit)

    def select(self, units: int, threads: int | None) -> Selection:
        """Select as many of the lowest units."""
        return select(
            self.scores,
            units * self.weights / max(self.scores.sizes[self.name], 1),
            scope="tensor",
            granularity=self.unit,
            floor=self.floor,
            ceiling=self.ceiling,
            threads=threads,
        )

    def keeps(self, max_rel_l2: float, units: int, threads: int | None) -> bool:
        """Return whether pruning so many units keeps an error, as `compare` measures."""
        weights = np.ascontiguousarray(self.scores.weights[self.name])
        mask = self.select(units, threads).mask(self.name)
        return measure(weights, pruned(weights, mask)).rel_l2 <= max_rel_l2


def prunable_tensors(
    scores: StreamingScores, granularity: str | Granularity, floor: float, ceiling: float
) -> list[PrunableTensor]:
    """Return how much of each tensor may be pruned under limits of its density.

    Raises
    ------
    PruningError
        If the granularity is a pattern, or does not suit a tensor, or there is no tensor.
    """
    unit = parse_granularity(granularity)
    if isinstance(unit, NM):
        raise PruningError(f"{unit} has one sparsity only; there is nothing to adapt")
    if not scores.names:
        raise PruningError("there is no tensor to prune")
    found = []
    for name in scores.names:
        limits = limits_of(scores, name, unit, floor, ceiling)
        weights = math.prod(unit.tile(scores.shapes[name], name))
        least, most = -(-limits.least // weights), limits.most // weights
        single = scores.only(name)
        found.append(PrunableTensor(single, name, unit, floor, ceiling, weights, least, most))
    return found


def _together(tensors: Mapping[str, Selection], unit: Granularity) -> Selection:
    """Return one selection of tensors that were selected one by one."""
    return Selection(
        unit,
        {name: selection.sizes[name] for name, selection in tensors.items()},
        {name: selection.pruned[name] for name, selection in tensors.items()},
        lambda name: tensors[name].mask(name),
    )


def select_within_error(
    scores: StreamingScores,
    max_rel_l2: float,
    *,
    granularity: str | Granularity = Element(),  # noqa: B008 - a frozen value
    floor: float = USUAL_FLOOR,
    ceiling: float = 1.0,
    threads: int | None = None,
) -> Selection:
    """Select as much of each tensor as an error allows.

    In each tensor the lowest weights by (score, flat index) are pruned, as many as keep
    ‖x − x̂‖₂ / ‖x‖₂ within the limit, measured as `compare` measures it: one more would break it.
    By magnitude that is the most of any choice.

    Parameters
    ----------
    scores : StreamingScores
        With the weights that the error is of.
    max_rel_l2 : float
        From 0, where only zeros are pruned, to 1.
    granularity, floor, ceiling, threads : optional
        As for `select`; not `NM`.

    Raises
    ------
    PruningError
        If the limit is no such number, `ceiling` or earlier masks want more pruned than it allows,
        or a tensor holds NaN or infinity.

    Notes
    -----
    Sorts each tensor: 0.1 µs and 8 bytes a weight by magnitude, 0.4 µs and 24 bytes otherwise.
    """
    limit = require_fraction("a rel-L2 to keep", max_rel_l2)
    selections = {}
    for tensor in prunable_tensors(scores, granularity, floor, ceiling):
        curve, name = tensor.curve(), tensor.name
        # The curve adds squares up in another order than who measures the result: near the limit,
        # what is measured decides.
        low, high = (
            min(curve.within(limit * (1 + part)), tensor.most) for part in (-_ROUNDING, _ROUNDING)
        )
        units = most_units(partial(tensor.keeps, limit, threads=threads), low, high)
        if units < tensor.least:
            raise PruningError(
                f"tensor {name!r}: the ceiling of its density, or earlier masks, want more pruned "
                f"than a rel-L2 of {limit} allows"
            )
        selections[name] = tensor.select(units, threads)
    return _together(selections, parse_granularity(granularity))


def select_within_size(
    scores: StreamingScores,
    max_bytes: int,
    file_size: Callable[[Selection], int],
    *,
    granularity: str | Granularity = Element(),  # noqa: B008 - a frozen value
    floor: float = USUAL_FLOOR,
    ceiling: float = 1.0,
    threads: int | None = None,
) -> Selection:
    """Select as little of all tensors as makes a file small enough.

    One rel-L2 is common to all tensors: the largest sparsity within it is that of each. It is
    searched for by writing files.

    Parameters
    ----------
    scores : StreamingScores
        With the weights that errors are of.
    max_bytes : int
    file_size : callable
        Returns the bytes of the file that holds the pruned tensors; called some 5 to 20 times.
    granularity, floor, ceiling, threads : optional
        As for `select`; not `NM`.

    Returns
    -------
    Selection
        Of at most `max_bytes`, and of 99.5 % of it or more where the sizes allow it.

    Raises
    ------
    PruningError
        If the size is no positive integer, cannot be reached within the floor, or a tensor holds
        NaN or infinity.
    """
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 1:
        raise PruningError(f"a size to reach is a number of bytes of at least 1; got {max_bytes!r}")
    tensors = prunable_tensors(scores, granularity, floor, ceiling)
    points = {tensor.name: tensor.curve().points() for tensor in tensors}
    tried: dict[float, tuple[int, Selection]] = {}

    def fits(rel_l2: float) -> bool:
        selections = {}
        for tensor in tensors:
            units, errors = points[tensor.name]
            count = max(int(most_within(rel_l2, errors, units)), tensor.least)
            selections[tensor.name] = tensor.select(min(count, tensor.most), threads)
        selection = _together(selections, parse_granularity(granularity))
        tried[rel_l2] = file_size(selection), selection
        return tried[rel_l2][0] <= max_bytes

    if fits(0.0):
        return tried[0.0][1]
    if not fits(1.0):
        raise PruningError(
            f"a size of {max_bytes:,} bytes cannot be reached: pruned as far as the floor {floor} "
            f"allows, the file takes {tried[1.0][0]:,}; lower the floor or raise the size"
        )

    def middle(good: float, bad: float) -> float | None:
        smallest, largest = tried[good][0], tried[bad][0]
        if smallest >= _CLOSE * max_bytes:
            return None
        share = (largest - max_bytes) / (largest - smallest)
        return bad + (good - bad) * min(max(share, 0.1), 0.9)

    return tried[bisect(fits, 1.0, 0.0, middle=middle, evaluations=_EVALUATIONS)][1]
