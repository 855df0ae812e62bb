"""Score tensors run by run, never all at once.

But for those that must see a tensor whole (`Lamp`), which are computed once and kept.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from tensorcomp.codecs.rounding import is_float
from tensorcomp.errors import PruningError
from tensorcomp.planning.statistics import Statistics
from tensorcomp.selection.checks import require_mask
from tensorcomp.selection.granularity import Granularity
from tensorcomp.selection.scores.base import Score, widened

RUN = 1 << 18  # elements; a run's scores stay in the cache


class LazyArrays(Mapping[str, np.ndarray]):
    """Arrays by name, in the order of plain text, read on access."""

    def __init__(self, read: Mapping[str, Callable[[], np.ndarray]]) -> None:
        self._read = dict(sorted(read.items()))

    def __getitem__(self, name: str) -> np.ndarray:
        """Read an array."""
        return self._read[name]()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._read)

    def __len__(self) -> int:
        """Return the number of arrays."""
        return len(self._read)


class StreamingScores(Mapping[str, np.ndarray]):
    """The scores of tensors by name, computed on access.

    Parameters
    ----------
    weights : mapping of str to numpy.ndarray
    score : Score
    statistics : Statistics, optional
        What the score needs beside the weights.
    names : sequence of str, optional
        Which of the tensors; all by default.
    masked : mapping of str to callable, optional
        Return masks by which tensors are multiplied where they are used, 0 or 1: what is 0 there is
        scored as zero.
    previous : mapping of str to numpy.ndarray, optional
        Masks of earlier pruning, bool, of the tensors' shapes. Scores of what they drop are −∞,
        which makes these the lowest.

    Attributes
    ----------
    names : tuple of str
        The tensors that have scores.
    skipped : dict of str to str
        Those that have none, and why.

    Raises
    ------
    PruningError
        If a statistic is missing of all, or it or a mask has another shape than its tensor.
    """

    def __init__(
        self,
        weights: Mapping[str, np.ndarray],
        score: Score,
        statistics: Statistics | None = None,
        previous: Mapping[str, np.ndarray] | None = None,
        *,
        names: Collection[str] | None = None,
        masked: Mapping[str, Callable[[], np.ndarray]] | None = None,
    ) -> None:
        self.weights = weights
        self.score = score
        self.masked = masked or {}
        self.previous = previous or {}
        self.names = tuple(sorted(weights if names is None else names))
        self.skipped: dict[str, str] = {}
        if score.statistic is not None and statistics is not None:
            known = statistics.arrays.get(score.statistic, {})
            if not known.keys() >= set(self.names):
                own = {name: (name,) for name in self.names}
                statistics = statistics.matched(score.statistic, own)
            new = [name for name in self.names if name not in self.previous]
            self.skipped = statistics.missing(score.statistic, new)
            self.names = tuple(name for name in self.names if name not in self.skipped)
        self.statistics = statistics
        self._kept: dict[str, np.ndarray] = {}
        self._statistics: dict[str, np.ndarray] = {}
        self.shapes = {name: weights[name].shape for name in self.names}
        self.sizes = {name: math.prod(shape) for name, shape in self.shapes.items()}
        if score.statistic is not None:
            if statistics is None:
                raise PruningError(
                    f"the score {score} needs the statistic {score.statistic!r}: give statistics "
                    "that calibrate measured"
                )
            for name, shape in self.shapes.items():
                array = self._statistics[name] = statistics.of(score.statistic, name)
                matrix = (*shape[:1], math.prod(shape[1:]))
                fits = array.shape in (shape, shape[1:], matrix, matrix[1:])
                if not fits and not self.is_transposed(name):
                    raise PruningError(
                        f"tensor {name!r} has the shape {list(shape)}, its statistic "
                        f"{score.statistic!r} {list(array.shape)}: it is of another model"
                    )
        for name, mask in self.previous.items():
            if name not in self.shapes:
                raise PruningError(f"a mask is for {name!r}, which is not one of the tensors")
            require_mask(name, mask, self.shapes[name])

    def after(self, previous: Mapping[str, np.ndarray]) -> StreamingScores:
        """Return the scores of what earlier pruning left."""
        return self._part(self.names, previous)

    def only(self, *names: str) -> StreamingScores:
        """Return the scores of some tensors."""
        previous = {key: mask for key, mask in self.previous.items() if key in names}
        part = self._part(names, previous)
        part._kept, part.skipped = self._kept, self.skipped
        return part

    def _part(self, names: Collection[str], previous: Mapping[str, np.ndarray]) -> StreamingScores:
        weights, score, statistics = self.weights, self.score, self.statistics
        return StreamingScores(
            weights, score, statistics, previous, names=names, masked=self.masked
        )

    def suited(self, unit: Granularity) -> StreamingScores:
        """Return the scores of tensors that can be cut into units; skip others.

        Raises
        ------
        PruningError
            If none can, or one cannot that was pruned earlier.
        """
        skipped = dict(self.skipped)
        for name in self.names:
            try:
                unit.tile(self.shapes[name], name)
            except PruningError as error:
                skipped[name] = error.message.partition("; ")[0]
                if name in self.previous or skipped.keys() >= set(self.names):
                    raise
        part = self.only(*(name for name in self.names if name not in skipped))
        part.skipped = skipped
        return part

    @functools.cached_property
    def dtype(self) -> np.dtype:
        """The type of all runs: float32, or float64 where a tensor's scores are that."""
        kinds = {self.weights[name].dtype for name in self.names}
        kinds |= {statistic.dtype for statistic in self._statistics.values()}
        double = self.score.double or any(kind == np.float64 for kind in kinds)
        return np.dtype(np.float64 if double else np.float32)

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a tensor's scores."""
        if len(self.bounds(name)) == 1:
            return next(self.runs(name))[1].reshape(self.shapes[name])
        whole = np.empty(self.shapes[name], self.dtype)
        for start, run in self.runs(name):
            whole.reshape(-1)[start : start + run.size] = run
        return whole

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self.names)

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self.names)

    def is_transposed(self, name: str) -> bool:
        """Return whether a matrix is inputs × outputs, as its statistic shows."""
        shape, statistic = self.shapes[name], self._statistics.get(name)
        column = (*shape[:1], 1)
        return len(shape) == 2 and shape != column and getattr(statistic, "shape", None) == column

    def dropped(self, name: str) -> int:
        """Return how many elements of a tensor were pruned earlier."""
        earlier = self.previous.get(name)
        return 0 if earlier is None else int(np.count_nonzero(~earlier))

    def bounds(self, name: str) -> list[tuple[int, int]]:
        """Return where a tensor's runs start and stop: whole rows, at least one run."""
        size, length = self.sizes[name], self._run_length(name)
        starts = range(0, max(size, 1), length)
        return [(start, min(start + length, size)) for start in starts]

    def runs(
        self, name: str, bounds: Sequence[tuple[int, int]] | None = None
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yield a tensor's scores in flat runs, each with its first index.

        All of them, or some.
        """
        if not self.score.elementwise:
            yield 0, self._whole(name)
            return
        flat = self.weights[name].reshape(-1)
        for start, stop in self.bounds(name) if bounds is None else bounds:
            scores = self._run(name, flat[start:stop], start)
            yield start, scores.astype(self.dtype, copy=False)

    def _whole(self, name: str) -> np.ndarray:
        """Return the scores of a tensor that is scored whole; they are kept."""
        if name not in self._kept:
            self._kept[name] = self._run(name, self.weights[name].reshape(-1), 0)
        return self._kept[name].astype(self.dtype, copy=False)

    def _run_length(self, name: str) -> int:
        if not self.score.elementwise:
            return max(math.prod(self.shapes[name]), 1)
        row = max(math.prod(self.shapes[name][1:]), 1)
        return max(RUN // row, 1) * row

    def _run(self, name: str, weights: np.ndarray, start: int) -> np.ndarray:
        statistic = self._statistics.get(name)
        if statistic is not None:
            flat = statistic.reshape(-1)
            if statistic.size == self.sizes[name]:
                statistic = flat[start : start + weights.size]
            elif self.is_transposed(name):
                row = self.shapes[name][1]
                first = start // row
                statistic = np.repeat(flat[first : first + weights.size // row], row)
            else:  # one for the weights of every output
                statistic = np.tile(flat, weights.size // max(flat.size, 1))
        dead = None
        if name in self.masked:
            dead = self.masked[name]().reshape(-1)[start : start + weights.size] == 0
            weights = np.where(dead, weights.dtype.type(0), weights)
        if not self.score.elementwise:
            weights = weights.reshape(self.shapes[name])
        # What overflows is the highest; what is then no number is found when it is selected.
        with np.errstate(over="ignore", invalid="ignore"):
            scores = self.score.score(weights, statistic, name=name, start=start).reshape(-1)
        if dead is not None:
            scores = np.where(dead, scores.dtype.type(0), scores)
        earlier = self.previous.get(name)
        if earlier is None:
            return scores
        above = np.maximum(scores, np.finfo(scores.dtype).min)
        return np.where(earlier.reshape(-1)[start : start + scores.size], above, -np.inf)


def given_scores(arrays: Mapping[str, np.ndarray]) -> StreamingScores:
    """Wrap scores that are computed already, arrays of any float type."""
    for name, array in arrays.items():
        dtype = array.dtype if isinstance(array, np.ndarray) else None
        if dtype is None or not is_float(dtype) or dtype.itemsize > 8 or not dtype.isnative:
            raise PruningError(
                f"the scores of {name!r} are a {type(array).__name__} of "
                f"{dtype or 'no type'}; give a NumPy array of floats"
            )
    return StreamingScores(arrays, _Given())


class _Given(Score):
    """The score of given scores."""

    id = "given"

    def score(
        self, weights: np.ndarray, statistic: np.ndarray | None, *, name: str, start: int = 0
    ) -> np.ndarray:
        """Return them."""
        return widened(weights)
