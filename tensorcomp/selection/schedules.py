"""Make schedules: the sparsity of each round of iterative pruning."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from tensorcomp.errors import PruningError
from tensorcomp.selection.checks import require_count, require_fraction


def one_shot(sparsity: float) -> tuple[float, ...]:
    """Return the schedule of a single round.

    Parameters
    ----------
    sparsity : float
        From 0 to 1.

    Raises
    ------
    PruningError
        If it is anything else.

    Examples
    --------
    >>> one_shot(0.9)
    (0.9,)
    """
    return (require_fraction("sparsity", sparsity),)


def exponential(sparsity: float, rounds: int, start: float = 0.0) -> tuple[float, ...]:
    """Return sparsities whose densities fall by an equal factor in each round.

    After round i of n the density is (1 − start) · ((1 − sparsity) / (1 − start)) ^ (i / n): each
    round prunes the same part of the weights that are left.

    Parameters
    ----------
    sparsity : float
        The last one, above `start` and below 1.
    rounds : int
        At least 1.
    start : float
        What is pruned before the first round.

    Returns
    -------
    tuple of float
        As many as there are rounds, increasing.

    Raises
    ------
    PruningError
        If an argument is anything else, or so many rounds are no longer distinct.

    References
    ----------
    Frankle & Carbin 2019, "The Lottery Ticket Hypothesis": 20 % of what is left in each round.

    Examples
    --------
    >>> exponential(0.75, 2)
    (0.5, 0.75)
    """
    low, high, parts = _checked(sparsity, rounds, start)
    if high == 1:
        raise PruningError("equal factors never reach a sparsity of 1; take less, or 'cubic'")
    factor = (1 - high) / (1 - low)
    return _increasing(low, [1 - (1 - low) * factor**part for part in parts], high)


def cubic(sparsity: float, rounds: int, start: float = 0.0) -> tuple[float, ...]:
    """Return sparsities that rise fast at first and slowly in the end.

    After round i of n the sparsity is sparsity + (start − sparsity) · (1 − i / n)³: the step is
    large while many weights are redundant.

    Parameters
    ----------
    sparsity : float
        The last one, above `start`, at most 1.
    rounds : int
        At least 1.
    start : float
        What is pruned before the first round.

    Returns
    -------
    tuple of float
        As many as there are rounds, increasing.

    Raises
    ------
    PruningError
        If an argument is anything else, or so many rounds are no longer distinct.

    References
    ----------
    Zhu & Gupta 2017, "To prune, or not to prune: exploring the efficacy of pruning for model
    compression".

    Examples
    --------
    >>> cubic(1, 2)
    (0.875, 1.0)
    """
    low, high, parts = _checked(sparsity, rounds, start)
    return _increasing(low, [high - (high - low) * (1 - part) ** 3 for part in parts], high)


def check_schedule(sparsities: Iterable[float]) -> tuple[float, ...]:
    """Require a schedule: one or more sparsities from 0 to 1, increasing.

    Raises
    ------
    PruningError
        If it is anything else.
    """
    if not isinstance(sparsities, Iterable):
        raise PruningError(f"expected one or more increasing sparsities, got {sparsities!r}")
    schedule = tuple(require_fraction("each sparsity", sparsity) for sparsity in sparsities)
    if not schedule or any(a >= b for a, b in itertools.pairwise(schedule)):
        raise PruningError(f"expected one or more increasing sparsities, got {schedule}")
    return schedule


def _checked(sparsity: float, rounds: int, start: float) -> tuple[float, float, list[float]]:
    """Return both ends of a schedule, and which part of it each round but the last has done."""
    high, low = require_fraction("sparsity", sparsity), require_fraction("start", start)
    require_count("rounds", rounds)
    if low >= high:
        raise PruningError(f"start is below the sparsity {high}; got {start!r}")
    return low, high, [i / rounds for i in range(1, rounds)]


def _increasing(low: float, between: list[float], high: float) -> tuple[float, ...]:
    schedule = (*between, high)
    if any(a >= b for a, b in itertools.pairwise((low, *schedule))):
        what = f"{len(schedule)} rounds from {low} to {high}"
        raise PruningError(f"{what} are no longer distinct; take fewer")
    return schedule
