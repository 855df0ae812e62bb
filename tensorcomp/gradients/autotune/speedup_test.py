"""Time real steps under each of several plans, and find the fastest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

SETTLING = 2  # steps after a change that are not counted: what was left out is sent, memory is new
TIMED = 3  # steps of each plan
_STEPS = SETTLING + TIMED


class SpeedupTest:
    """Run through plans, some steps each, and collect the steps' times.

    It depends on the number of steps alone, so that all ranks run the same plan at the same step.

    Parameters
    ----------
    plans : sequence of mapping
        Choices by parameter; the first is that of dense gradients.
    """

    def __init__(self, plans: Sequence[Mapping[str, str]]) -> None:
        self.plans = plans
        self._seconds: list[float] = []

    @property
    def done(self) -> bool:
        """Return whether all plans have been timed."""
        return len(self._seconds) >= len(self.plans) * _STEPS

    @property
    def plan(self) -> Mapping[str, str]:
        """Return the plan that is being timed; the last one once the test is done."""
        return self.plans[min(len(self._seconds) // _STEPS, len(self.plans) - 1)]

    def record(self, seconds: float) -> None:
        """Take the time of the step that has just ended."""
        if not self.done:
            self._seconds.append(seconds)

    def medians(self) -> np.ndarray:
        """Return the median seconds of each plan (P,), once the test is done."""
        medians: np.ndarray = np.median(np.reshape(self._seconds, (-1, _STEPS))[:, SETTLING:], 1)
        return medians


def fastest(seconds: np.ndarray, current: int | None, hysteresis: float) -> int:
    """Return which plan to keep.

    The slowest rank counts. Compression must save more than `hysteresis` of a dense step's time to
    be worth its error; among plans that do, the one in use stays unless another one saves more than
    that of its time.

    Parameters
    ----------
    seconds : numpy.ndarray
        (W, P) of each rank and plan; the first plan is that of dense gradients.
    current : int or None
        The plan that was in use before.
    hysteresis : float

    Examples
    --------
    >>> fastest(np.array([[1.0, 0.5, 0.48]]), None, 0.1), fastest(np.array([[1.0, 0.95]]), 1, 0.1)
    (2, 0)
    """
    slowest = seconds.max(axis=0)
    worth = 1 - hysteresis
    paying = [plan for plan in range(1, slowest.size) if slowest[plan] < worth * slowest[0]]
    best = min(paying, key=slowest.__getitem__, default=0)
    if current in paying and slowest[best] >= worth * slowest[current]:
        return current
    return best
