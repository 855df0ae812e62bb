"""Choose the weights that are kept, for each granularity and scope."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from tensorcomp._threads import Workers
from tensorcomp.codecs.bit_views import as_words
from tensorcomp.errors import PruningError
from tensorcomp.kernels import native
from tensorcomp.selection.granularity import NM, Granularity
from tensorcomp.selection.kth_smallest import kth_smallest, not_a_number
from tensorcomp.selection.streaming_scores import StreamingScores

_FIRST, _FREE, _LAST = 0, 1, 2  # when a unit is pruned: before all others, by its score, never


@dataclass(frozen=True, slots=True)
class Kept:
    """The number of weights that a tensor loses, and a maker of its mask.

    What was pruned earlier is dropped from the mask as well.
    """

    pruned: int
    mask: Callable[[], np.ndarray]


@dataclass(frozen=True, slots=True)
class Limits:
    """The fewest and the most weights that a tensor may lose."""

    least: int
    most: int


def limits_of(
    scores: StreamingScores, name: str, unit: Granularity, floor: float, ceiling: float
) -> Limits:
    """Return how many weights a tensor may lose under limits of its density.

    Where a tensor is too small for both, the floor counts; what was pruned earlier stays pruned.
    """
    size, dropped = scores.sizes[name], scores.dropped(name)
    smallest = math.prod(unit.tile(scores.shapes[name], name))
    kept = max(math.ceil(_decimal(floor) * size), min(smallest, size)) if floor > 0 else 0
    most = max(size - kept, dropped)
    least = min(size - math.floor(_decimal(ceiling) * size), most)
    return Limits(max(least, dropped), most)


def _decimal(part: float) -> Fraction:
    """Return the decimal as written: 0.07 of 100 is 7, not 7.000000000000001."""
    return Fraction(repr(float(part)))


def select_elements(
    scores: StreamingScores,
    names: Sequence[str],
    k: int,
    limits: Mapping[str, Limits],
    workers: Workers,
) -> dict[str, Kept]:
    """Keep all but the lowest k elements, within each tensor's limits.

    A tensor whose limit is broken is held at it, and the others are cut anew; those on the side
    that is broken more come first, which leads to the optimum.
    """
    cuts = {}
    active = list(names)
    while active:
        found = kth_smallest(scores, active, k, workers)
        over = {name: max(cut.count - limits[name].most, 0) for name, cut in found.items()}
        under = {name: max(limits[name].least - cut.count, 0) for name, cut in found.items()}
        broken = over if sum(over.values()) >= sum(under.values()) else under
        if not any(broken.values()):
            cuts.update(found)
            break
        for name in [name for name in active if broken[name]]:
            held = limits[name].most if broken is over else limits[name].least
            cuts.update(kth_smallest(scores, [name], held, workers))
            active.remove(name)
            k -= held

    def mask(name: str) -> np.ndarray:
        return cuts[name].mask(scores, name)

    return {name: Kept(cuts[name].count, partial(mask, name)) for name in names}


def select_units(
    scores: StreamingScores,
    names: Sequence[str],
    k: int,
    limits: Mapping[str, Limits],
    unit: Granularity,
) -> dict[str, Kept]:
    """Keep all but the lowest units, as many as come nearest to k elements.

    The first ones of each tensor go before all others where its limit wants them gone, and the last
    ones stay. What was pruned earlier counts, in units that stay as well.
    """
    parts = [_units_of(scores, name, unit, limits[name]) for name in names]
    values, weights, turns = map(np.concatenate, zip(*parts, strict=True))
    order = np.lexsort((np.arange(values.size), values, turns))
    totals = sum(map(scores.dropped, names)) + np.concatenate([[0], np.cumsum(weights[order])])
    firm, free = (int(np.count_nonzero(turns == turn)) for turn in (_FIRST, _FREE))
    choices = np.abs(totals[firm : firm + free + 1] - k)
    keep = np.ones(values.size, np.bool_)
    keep[order[: firm + int(np.argmin(choices))]] = False
    ends = np.cumsum([part[0].size for part in parts])

    found = {}
    for name, own, part in zip(names, np.split(keep, ends[:-1]), parts, strict=True):
        pruned = scores.dropped(name) + int(part[1][~own].sum())
        found[name] = Kept(pruned, partial(unit.spread, own, scores.shapes[name]))
    return found


def _units_of(
    scores: StreamingScores, name: str, unit: Granularity, limits: Limits
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the scores, the weights left and the turns of the units of a tensor."""
    sums = unit_scores(scores, name, unit)
    if np.isnan(sums).any():
        raise not_a_number(name)
    earlier, dropped = scores.previous.get(name), scores.dropped(name)
    weights = np.full(sums.size, math.prod(unit.tile(scores.shapes[name], name)))
    if earlier is not None:
        weights = unit.sums(earlier).astype(np.int64)
    turns = np.full(sums.size, _FREE)
    order = np.argsort(sums, kind="stable")
    totals = dropped + np.cumsum(weights[order])
    most = int(np.searchsorted(totals, limits.most, side="right"))
    least = int(np.searchsorted(totals, limits.least)) + 1 if limits.least > dropped else 0
    turns[order[most:]] = _LAST
    turns[order[: max(min(least, most), int(np.count_nonzero(weights == 0)))]] = _FIRST
    return sums, weights, turns


def unit_scores(scores: StreamingScores, name: str, unit: Granularity) -> np.ndarray:
    """Return the scores of a tensor's units; −∞ of those with no weight left."""
    whole, earlier = scores[name], scores.previous.get(name)
    with np.errstate(over="ignore", invalid="ignore"):
        if earlier is None:
            return unit.sums(whole)
        sums = unit.sums(np.where(earlier, whole, 0))
    sums[unit.sums(earlier) == 0] = -np.inf
    return sums


def select_in_rows(
    scores: StreamingScores, fractions: Mapping[str, float], limits: Mapping[str, Limits]
) -> dict[str, Kept]:
    """Keep all but the lowest elements of each output: a row, or a column."""
    kept = {}
    for name in scores.names:
        k = round(fractions[name] * scores.sizes[name])
        require_reachable(scores, [name], k, limits)
        kept[name] = _rows_kept(scores, name, k)
    return kept


def _rows_kept(scores: StreamingScores, name: str, k: int) -> Kept:
    shape, transposed = scores.shapes[name], scores.is_transposed(name)
    rows = shape[transposed] if len(shape) > 1 else 1
    # Each row loses the same, but for one: together they lose k.
    drop = np.diff(np.arange(rows + 1) * k // max(rows, 1))

    def mask() -> np.ndarray:
        columns = scores.sizes[name] // max(rows, 1)
        places = np.empty((rows, columns), np.bool_)
        runs = (
            [(0, np.ascontiguousarray(scores[name].T))] if transposed else _whole_rows(scores, name)
        )
        for start, run in runs if places.size else ():
            words = as_words(run.reshape(-1, columns))
            first, last = start // columns, start // columns + len(words)
            native.scores_mark_rows(words, drop[first:last], places[first:last])
        return places.T if transposed else places

    earlier = scores.previous.get(name)
    if earlier is not None and (mask().reshape(shape) > earlier).any():
        raise PruningError(f"tensor {name!r}: earlier masks drop more of a row than is asked for")
    _require_numbers(scores, name)
    return Kept(k, mask)


def select_in_groups_of_neighbours(scores: StreamingScores, unit: NM) -> dict[str, Kept]:
    """Keep the highest of each group of neighbours."""

    def mask(name: str) -> np.ndarray:
        if unit.axis != -1:
            return unit.keeps(scores[name])
        whole = np.empty(scores.sizes[name], np.bool_)
        for start, run in _whole_rows(scores, name):
            whole[start : start + run.size] = unit.keeps(run)
        return whole

    kept = {}
    for name in scores.names:
        _require_numbers(scores, name)
        size, earlier = scores.sizes[name], scores.previous.get(name)
        pruned = size - size // unit.group * unit.keep
        if earlier is not None:
            left = mask(name).reshape(-1) & earlier.reshape(-1)
            pruned = size - int(np.count_nonzero(left))
        kept[name] = Kept(pruned, partial(mask, name))
    return kept


def _whole_rows(scores: StreamingScores, name: str) -> Iterator[tuple[int, np.ndarray]]:
    """Yield scores in flat runs of whole rows; a vector is one row."""
    if len(scores.shapes[name]) > 1:
        yield from scores.runs(name)
    else:
        yield 0, scores[name].reshape(-1)


def _require_numbers(scores: StreamingScores, name: str) -> None:
    for _, run in scores.runs(name):
        if np.isnan(run).any():
            raise not_a_number(name)


def require_reachable(
    scores: StreamingScores,
    names: Sequence[str],
    k: int,
    limits: Mapping[str, Limits],
    slack: int = 0,
) -> None:
    """Require that the limits of tensors allow k pruned weights.

    At most `slack` more or fewer.
    """
    least = sum(limits[name].least for name in names)
    most = sum(limits[name].most for name in names)
    if not least - slack <= k <= most + slack:
        size = sum(scores.sizes[name] for name in names)
        which = f"tensor {names[0]!r}" if len(names) == 1 else f"{len(names)} tensors"
        limit = "ceiling=…" if k < least else "floor=… (0 lets whole tensors go)"
        raise PruningError(
            f"{which}: {k} of {size} weights cannot be pruned, only {least} to {most} by the "
            f"limits of density and earlier masks; change {limit} or sparsity=…"
        )
