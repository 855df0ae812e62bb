"""Phases of training, told from how much the validation metric still changes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Compressor, GradientSpec, StepInfo, leaf_of, map_leaf
from tensorcomp.gradients.compressors.error_bounded import ErrorBounded
from tensorcomp.gradients.wrappers.ratios import ratio_of, with_ratio
from tensorcomp.gradients.wrappers.scheduler import Scheduler

PHASES = ("beginning", "middle", "final")


@dataclass(frozen=True)
class PhaseTracker:
    """In which phase training is; `observe` returns the tracker after another metric.

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
    window: int = 2
    may_return: bool = False
    phase: str = PHASES[0]
    metrics: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.final_below <= self.middle_below:
            raise ValueError(
                "final_below is 0 or more, and middle_below not less; got "
                f"{self.final_below!r} and {self.middle_below!r}"
            )
        if self.window < 1:
            raise ValueError(f"window is 1 change or more; got {self.window!r}")
        _check_phases([self.phase])

    def observe(self, metric: float) -> PhaseTracker:
        """Return the tracker after another validation metric, such as a loss or an accuracy.

        Raises
        ------
        GradientError
            If the metric is not finite.
        """
        if not math.isfinite(metric):
            raise GradientError(f"a validation metric is {metric}; phases are told by finite ones")
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


@dataclass(frozen=True)
class PhaseTolerance(Scheduler):
    """Let each phase of training have a ratio or an error bound of its own.

    What training tolerates is large at its beginning and small in its final phase, so ratios are
    small and bounds are large first.

    Parameters
    ----------
    inner : Compressor
    ratios : mapping of str to float
        By phase, the fraction of elements that is kept; where a phase has none, `inner` keeps its
        own.
    bounds : mapping of str to float
        By phase, the bound of an `ErrorBounded`, of the kind that it has.

    Raises
    ------
    ValueError
        If there are neither or both, a phase is unknown, a figure is out of range, or `inner` has
        no ratio or no bound that could be another one.
    """

    inner: Compressor
    ratios: Mapping[str, float] = field(default_factory=dict)
    bounds: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if bool(self.ratios) == bool(self.bounds):
            raise ValueError("phases have either ratios or bounds; give one of them")
        _check_phases([*self.ratios, *self.bounds])
        for phase, ratio in self.ratios.items():
            if not 0 < ratio < 1:
                raise ValueError(f"ratios are above 0 and below 1; {phase} has {ratio!r}")
        for phase, bound in self.bounds.items():
            if not 0 < bound < math.inf:
                raise ValueError(f"bounds are above 0; {phase} has {bound!r}")
        leaf = leaf_of(self.inner)
        if self.ratios and ratio_of(leaf, 1) is None:
            raise ValueError(
                f"{leaf.text()} has no ratio that phases could change; give a compressor such as "
                "topk(0.01)"
            )
        if self.bounds and not isinstance(leaf, ErrorBounded):
            raise ValueError(
                f"{leaf.text()} has no bound that phases could change; give a compressor such as "
                "error_bounded(max_rel_l2=0.1)"
            )

    def text(self) -> str:
        """Return the inner compressor's text and the figures of the phases."""
        values = self.ratios or self.bounds
        figures = ", ".join(f"{phase}={value!r}" for phase, value in values.items())
        return f"phases({self.inner.text()}, {figures})"

    def at(self, info: StepInfo, spec: GradientSpec) -> Compressor:
        """Return the inner compressor with the ratio or the bound of the phase."""
        inner = self.inner.at(info, spec)
        if info.phase in self.ratios:
            ratio = self.ratios[info.phase]
            return map_leaf(inner, lambda leaf: with_ratio(leaf, ratio))
        if info.phase in self.bounds:
            bound = self.bounds[info.phase]
            return map_leaf(inner, lambda leaf: _bounded(leaf, bound))
        return inner


def _bounded(leaf: Compressor, bound: float) -> Compressor:
    if not isinstance(leaf, ErrorBounded):
        return leaf
    if leaf.max_abs is None:
        return replace(leaf, max_rel_l2=bound)
    return replace(leaf, max_abs=bound)


def _check_phases(phases: list[str]) -> None:
    for phase in phases:
        if phase not in PHASES:
            raise ValueError(f"no phase is called {phase!r}; they are {', '.join(PHASES)}")
