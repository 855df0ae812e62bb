"""Raise the sparsity of each tensor to an error budget or a file size.

Needs no torch, so that stored checkpoints are pruned by it too; a validation loss is the limit in
`tensorcomp.pruning.search`, which runs a model.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tensorcomp.errors import PruningError
from tensorcomp.metrics.distortion import measure
from tensorcomp.selection.checks import pruned, require_count, require_fraction
from tensorcomp.selection.error_curve import ErrorCurve, most_within
from tensorcomp.selection.granularity import NM, Granularity, parse_granularity
from tensorcomp.selection.groups import limits_of
from tensorcomp.selection.select import USUAL_FLOOR, Selection, select
from tensorcomp.selection.streaming_scores import StreamingScores

_ROUNDING = 1e-10  # relative; far more than sums of squares in float64 differ by
_EVALUATIONS = 16
_CLOSE = 0.995  # of a size: enough of it is used


class AdaptiveSelection:
    """Select from each tensor as many of its lowest units as a budget allows.

    Parameters
    ----------
    scores : StreamingScores
        With the weights that errors are of.
    granularity, floor, ceiling, threads : optional
        As for `select`; not `NM`.

    Attributes
    ----------
    least, most : dict of str to int
        The fewest and the most units of each tensor that may be pruned.

    Raises
    ------
    PruningError
        If the granularity is a pattern, or suits no tensor.

    Notes
    -----
    Sorts each tensor: 0.1 µs and 8 bytes a weight by magnitude, 0.4 µs and 24 bytes otherwise.
    """

    def __init__(
        self,
        scores: StreamingScores,
        granularity: str | Granularity = "element",
        floor: float = USUAL_FLOOR,
        ceiling: float = 1.0,
        threads: int | None = None,
    ) -> None:
        self.unit = parse_granularity(granularity)
        if isinstance(self.unit, NM):
            raise PruningError(f"{self.unit} has one sparsity only; there is nothing to adapt")
        self.scores = scores = scores.suited(self.unit)
        self._alone = {name: scores.only(name) for name in scores.names}
        self._floor = floor
        self._limits: dict[str, Any] = {"floor": floor, "ceiling": ceiling, "threads": threads}
        self._weights: dict[str, int] = {}  # of one unit
        self.least: dict[str, int] = {}
        self.most: dict[str, int] = {}
        for name in scores.names:
            limits = limits_of(scores, name, self.unit, floor, ceiling)
            weights = math.prod(self.unit.tile(scores.shapes[name], name))
            self._weights[name] = weights
            self.least[name], self.most[name] = -(-limits.least // weights), limits.most // weights

    def units(self, name: str) -> int:
        """Return how many units a tensor has."""
        return self.scores.sizes[name] // self._weights[name]

    def curve(self, name: str) -> ErrorCurve:
        """Return the error of a tensor by how many of its units are pruned."""
        return ErrorCurve.of(self._alone[name], name, self.unit)

    def select(self, counts: Mapping[str, int]) -> Selection:
        """Select as many of the lowest units of one or all tensors."""
        sizes, weights = self.scores.sizes, self._weights
        scores = self._alone[next(iter(counts))] if len(counts) == 1 else self.scores
        parts = {name: n * weights[name] / max(sizes[name], 1) for name, n in counts.items()}
        return select(scores, parts, scope="tensor", granularity=self.unit, **self._limits)

    def within_error(self, max_rel_l2: float) -> Selection:
        """Select as much of each tensor as an error, from 0 to 1, allows.

        In each tensor the lowest weights by (score, flat index) are pruned, as many as keep
        ‖x − x̂‖₂ / ‖x‖₂ within the limit, measured as `compare` measures it: one more would break
        it. By magnitude that is the most of any choice.

        Raises
        ------
        PruningError
            If the limit is no such number, `ceiling` or earlier masks want more pruned than it
            allows, or a tensor holds NaN or infinity.
        """
        limit = require_fraction("the rel-L2 of pruning", max_rel_l2)
        counts = {name: self._most_within(limit, name) for name in self.scores.names}
        for name, count in counts.items():
            if count < self.least[name]:
                what = f"tensor {name!r}: the ceiling of its density, or earlier masks, want"
                raise PruningError(f"{what} more pruned than a rel-L2 of {limit} allows")
        return self.select(counts)

    def _most_within(self, limit: float, name: str) -> int:
        """Return how many units of a tensor keep an error."""
        curve, most = self.curve(name), self.most[name]
        weights = np.ascontiguousarray(self.scores.weights[name])

        def breaks_limit(count: int) -> bool:
            mask = self.select({name: count}).mask(name)
            return measure(weights, pruned(weights, mask)).rel_l2 > limit

        # The curve adds squares up in another order: near the limit, measurements decide.
        low, high = (min(curve.within(limit * (1 + e)), most) for e in (-_ROUNDING, _ROUNDING))
        return low + bisect_left(range(low + 1, high + 1), True, key=breaks_limit)

    def within_size(self, max_bytes: int, file_size: Callable[[Selection], int]) -> Selection:
        """Select as little of all tensors as makes a file small enough.

        One rel-L2 is common to all tensors: the largest sparsity within it is that of each. It is
        searched for by writing files.

        Parameters
        ----------
        max_bytes : int
        file_size : callable
            Returns the bytes of the file that holds the pruned tensors; called 5 to 20 times.

        Returns
        -------
        Selection
            Of at most `max_bytes`, and of 99.5 % of it or more where the sizes allow it.

        Raises
        ------
        PruningError
            If the size is no positive integer, cannot be reached within the floor, or a tensor
            holds NaN or infinity.
        """
        require_count("the target size in bytes", max_bytes)
        points = {name: self.curve(name).points() for name in self.scores.names}
        tried: dict[float, tuple[int, Selection]] = {}

        def fits(rel_l2: float) -> bool:
            counts = {}
            for name, (amounts, errors) in points.items():
                count = max(int(most_within(rel_l2, errors, amounts)), self.least[name])
                counts[name] = min(count, self.most[name])
            selection = self.select(counts)
            tried[rel_l2] = file_size(selection), selection
            return tried[rel_l2][0] <= max_bytes

        if fits(0.0):
            return tried[0.0][1]
        if not fits(1.0):
            raise PruningError(
                f"a size of {max_bytes:,} bytes cannot be reached: pruned as far as the floor "
                f"{self._floor} allows, the file takes {tried[1.0][0]:,}; lower floor=… or raise "
                "the size"
            )

        def middle(good: float, bad: float) -> float | None:
            smallest, largest = tried[good][0], tried[bad][0]
            if smallest >= _CLOSE * max_bytes:
                return None
            share = (largest - max_bytes) / (largest - smallest)
            return bad + (good - bad) * min(max(share, 0.1), 0.9)

        return tried[narrow(fits, 1.0, 0.0, middle, _EVALUATIONS)][1]


def narrow(
    fits: Callable[[float], bool],
    good: float,
    bad: float,
    middle: Callable[[float, float], float | None],
    evaluations: int,
) -> float:
    """Find the value nearest to `bad` that fits, by bisection from `good`.

    `middle` returns which value to try next between the two nearest, None to stop.
    """
    for _ in range(evaluations):
        value = middle(good, bad)
        if value is None:
            break
        good, bad = (value, bad) if fits(value) else (good, value)
    return good
