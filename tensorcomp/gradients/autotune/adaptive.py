"""Choosing a compressor for each tensor while training goes on, from what ranks measure."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tensorcomp.gradients.autotune.decisions import DENSE, decide
from tensorcomp.gradients.autotune.link_estimate import LinkEstimate
from tensorcomp.gradients.autotune.measurements import Measurement, Speed, Trial, measure
from tensorcomp.gradients.base import Compressor, GradientSpec, Reduction, StepInfo
from tensorcomp.gradients.cost_model.model import Link
from tensorcomp.gradients.wrappers.scheduler import Scheduler

__all__ = ["Adaptive", "LinkEstimate", "Measurement", "Speed", "Trial", "decide", "measure"]

CANDIDATES = ("topk(0.01, values=affine(8))", "affine(4, 128)", "affine(8, 128)", "fp16")


@dataclass(frozen=True)
class Adaptive(Scheduler):
    """Use for each tensor what was agreed on; nothing is compressed before that.

    Whoever trains does this every `every` steps, on all ranks: `measured`, gather the ranks'
    measurements as bytes, `agreed` on all of them alike, and from then on `StepInfo.choices`. With
    `ErrorFeedback` around it the residual goes on from one choice to the next.

    Parameters
    ----------
    candidates : tuple of str
        Texts of compressors without wrappers. ``"dense"`` is one in any case.
    max_rel_l2 : float, optional
        The largest error of a payload, ‖g − ĝ‖₂ / ‖g‖₂; none by default.
    every : int
        Steps between decisions.
    hysteresis : float
        Choices change if that saves more than this fraction of the time.

    Raises
    ------
    ValueError
        If a parameter is out of range, or a candidate decides itself.
    GradientError
        If a candidate's text is not understood.
    """

    candidates: tuple[str, ...] = CANDIDATES
    max_rel_l2: float | None = None
    every: int = 20
    hysteresis: float = 0.1

    def __post_init__(self) -> None:
        if self.max_rel_l2 is not None and not self.max_rel_l2 >= 0:
            raise ValueError(f"max_rel_l2 is 0 or more; got {self.max_rel_l2!r}")
        if not isinstance(self.every, int) or self.every < 1:
            raise ValueError(f"every is 1 step or more; got {self.every!r}")
        if not 0 <= self.hysteresis < 1:
            raise ValueError(f"hysteresis is from 0 up to but not 1; got {self.hysteresis!r}")
        for text in self.candidates:
            if isinstance(_leaf(text), Scheduler):
                raise ValueError(f"{text} decides itself and cannot be a candidate")  # noqa: TRY004
            if getattr(_leaf(text), "scale", False):
                raise ValueError(f"{text} scales up, which diverges with feedback; set scale=false")

    @property
    def reduction(self) -> Reduction:  # type: ignore[override]
        """That of dense gradients, which are sent before anything is decided."""
        return _leaf(DENSE).reduction

    @property
    def unbiased(self) -> bool:  # type: ignore[override]
        """Whether all candidates are."""
        return all(_leaf(text).unbiased for text in self.candidates)

    def text(self) -> str:
        """Return the candidates and the bound."""
        bound = "" if self.max_rel_l2 is None else f", max_rel_l2={self.max_rel_l2!r}"
        settings = f"every={self.every}, hysteresis={self.hysteresis!r}"
        return f"adaptive({', '.join(self.candidates)}{bound}, {settings})"

    def at(self, info: StepInfo, spec: GradientSpec) -> Compressor:
        """Return what was agreed on for a tensor; dense if nothing was."""
        return _leaf(info.choices.get(spec.name, DENSE)).at(info, spec)

    def is_due(self, step: int) -> bool:
        """Return whether a decision is to be taken before a step.

        Parameters
        ----------
        step : int
            Optimizer steps before it. In the first ones buckets of DistributedDataParallel change
            and memory is touched for the first time: they tell nothing of those that follow.
        """
        return step >= _FIRST and (step - _FIRST) % self.every == 0

    def measured(
        self,
        gradients: Iterable[tuple[GradientSpec, np.ndarray]],
        link: Link,
        *,
        previous: Measurement | None = None,
    ) -> Measurement:
        """Return what this rank measures on its own gradients; see `measurements.measure`.

        Parameters
        ----------
        gradients : iterable of (GradientSpec, numpy.ndarray)
        link : Link
            As this rank sees it now.
        previous : Measurement, optional
            What it measured before. Speeds and errors change slowly: only each fifth time they are
            measured anew.
        """
        if previous is not None and previous.age < _OLDEST:
            return previous.on(link)
        found = [(spec, gradient) for spec, gradient in gradients]
        compressors = {text: _leaf(text) for text in self.candidates if text != DENSE}
        return measure(compressors, found, link)

    def agreed(
        self,
        measurements: Sequence[Measurement],
        specs: Iterable[GradientSpec],
        world: int,
        *,
        current: Mapping[str, str] | None = None,
        buckets: int = 1,
    ) -> dict[str, str]:
        """Return the choices for all tensors; see `decisions.decide`."""
        return decide(
            measurements,
            specs,
            {text: _leaf(text).reduction for text in self.candidates if text != DENSE},
            world,
            max_rel_l2=self.max_rel_l2,
            current=current,
            hysteresis=self.hysteresis,
            buckets=buckets,
        )


_FIRST = 8
_OLDEST = 4


@functools.lru_cache(maxsize=256)
def _leaf(text: str) -> Compressor:
    from tensorcomp.gradients.recipes import parse_compressor

    return parse_compressor(text, feedback=False)
