"""Infer the phase of training from changes of a validation metric."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

from tensorcomp.codecs.arguments import argument, check_arguments
from tensorcomp.errors import GradientError

PHASES = ("beginning", "middle", "final")


@dataclass(frozen=True)
class PhaseTracker:
    """Track the phase of training; `observe` returns the next tracker.

    The change of a metric m is |mₜ − mₜ₋₁| / |mₜ₋₁|; of the last `window` changes the mean
    counts. Above `middle_below` training is at its beginning, below `final_below` it is in its
    final phase, and between, or at either, in the middle.

    Parameters
    ----------
    middle_below, final_below : float
    window : int
        Changes that are averaged. Until there are so many, training is where it was.
    may_return : bool
        Whether an earlier phase may come again.
    phase : str
        ``"beginning"``, ``"middle"`` or ``"final"``.
    metrics : tuple of float
        The last of them, at most `window` + 1.

    Raises
    ------
    ValueError
        If a parameter is out of range.

    Examples
    --------
    >>> tracker = PhaseTracker(window=1)
    >>> for loss in (2.0, 1.5, 1.43, 1.42):
    ...     tracker = tracker.observe(loss)
    ...     print(tracker.phase)
    beginning
    beginning
    middle
    final
    """

    middle_below: float = 0.08
    final_below: float = 0.02
    window: int = argument(2, least=1)
    may_return: bool = False
    phase: str = PHASES[0]
    metrics: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_arguments(self)
        check_phases([self.phase])
        if not 0 <= self.final_below <= self.middle_below:
            raise ValueError(
                "expected 0 <= final_below <= middle_below, got "
                f"{self.final_below!r} and {self.middle_below!r}"
            )

    def observe(self, metric: float) -> PhaseTracker:
        """Return the tracker after another validation metric, such as a loss.

        Raises
        ------
        GradientError
            If the metric is not finite.
        """
        if not math.isfinite(metric):
            raise GradientError(f"expected a finite validation metric, got {metric!r}")
        metrics = (*self.metrics, float(metric))[-self.window - 1 :]
        seen = replace(self, metrics=metrics)
        if len(metrics) <= self.window:
            return seen
        change = sum(_relative(*pair) for pair in pairwise(metrics)) / self.window
        found = 0 if change > self.middle_below else 1 if change >= self.final_below else 2
        if not self.may_return:
            found = max(found, PHASES.index(self.phase))
        return replace(seen, phase=PHASES[found])


def _relative(before: float, now: float) -> float:
    if before == now:
        return 0.0
    return abs(now - before) / abs(before) if before else math.inf


def check_phases(phases: list[str]) -> None:
    """Check that names are those of phases.

    Raises
    ------
    ValueError
        If one is none.
    """
    for phase in phases:
        if phase not in PHASES:
            raise ValueError(f"expected a phase among {', '.join(PHASES)}, got {phase!r}")
