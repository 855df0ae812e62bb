"""Compressing little at first, when gradients are large and change fast."""

from __future__ import annotations

from dataclasses import dataclass

from tensorcomp.gradients.base import Compressor, GradientSpec, StepInfo, map_leaf
from tensorcomp.gradients.compressors.dense import Dense
from tensorcomp.gradients.wrappers.ratios import ratio_of, with_ratio
from tensorcomp.gradients.wrappers.scheduler import Scheduler

RATIOS = (0.25, 0.0625, 0.015625, 0.004)


@dataclass(frozen=True)
class Warmup(Scheduler):
    """Send gradients dense, then with falling ratios, then as the inner compressor does.

    Wrappers around the leaf stay as they are, so that residuals and momentum go on. A leaf that
    keeps no fraction of elements is used as it is once dense steps are over, and no ratio goes
    below the leaf's own.

    Parameters
    ----------
    inner : Compressor
    dense_steps : int
        Optimizer steps that are dense.
    ratios : tuple of float
        Fractions of elements that are kept next, each for `steps_each` steps.
    steps_each : int

    Raises
    ------
    ValueError
        If an argument is out of range.

    References
    ----------
    Lin et al. 2018, "Deep gradient compression: reducing the communication bandwidth for
    distributed training", section 3.3.
    """

    inner: Compressor
    dense_steps: int = 0
    ratios: tuple[float, ...] = RATIOS
    steps_each: int = 1

    def __post_init__(self) -> None:
        counts = (self.dense_steps, self.steps_each)
        if not all(isinstance(count, int) and count >= 0 for count in counts):
            raise ValueError(
                f"dense_steps and steps_each are whole numbers from 0; got {self.dense_steps!r} "
                f"and {self.steps_each!r}"
            )
        for ratio in self.ratios:
            if not 0 < ratio < 1:
                raise ValueError(f"ratios are above 0 and below 1; got {ratio!r}")

    def text(self) -> str:
        """Return the inner compressor's text and the schedule."""
        ratios = ", ".join(map(repr, self.ratios))
        return (
            f"warmup({self.inner.text()}, steps={self.dense_steps}, ratios=({ratios}), "
            f"each={self.steps_each})"
        )

    @property
    def steps(self) -> int:
        """Optimizer steps until the inner compressor is used as it is."""
        return self.dense_steps + len(self.ratios) * self.steps_each

    def at(self, info: StepInfo, spec: GradientSpec) -> Compressor:
        """Return the inner compressor, or it around `Dense` or around a leaf that keeps more."""
        inner = self.inner.at(info, spec)
        if info.step < self.dense_steps:
            return map_leaf(inner, lambda _: Dense())
        if info.step >= self.steps:
            return inner
        ratio = self.ratios[(info.step - self.dense_steps) // self.steps_each]
        return map_leaf(inner, lambda leaf: _raised(leaf, ratio, spec.size))


def _raised(leaf: Compressor, ratio: float, size: int) -> Compressor:
    own = ratio_of(leaf, size)
    return leaf if own is None or own >= ratio else with_ratio(leaf, ratio)
