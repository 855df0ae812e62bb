"""Compressors that choose another compressor for each tensor and step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NoReturn

import numpy as np

from tensorcomp._expressions import Call
from tensorcomp.codecs.arguments import argument
from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Compressor, GradientSpec, Payload, State, StepInfo
from tensorcomp.gradients.compressors.dense import Dense
from tensorcomp.gradients.compressors.error_bounded import ErrorBounded
from tensorcomp.gradients.payload.decoded import DecodedGradient
from tensorcomp.gradients.wrappers.base import Outer, leaf_of, map_leaf
from tensorcomp.gradients.wrappers.phases import PHASES, check_phases

if TYPE_CHECKING:
    from tensorcomp.gradients.text import CompressorParser

RATIOS = (0.25, 0.0625, 0.015625, 0.004)


class Scheduler(Outer, Compressor):  # type: ignore[override]
    """Choose the compressor of a tensor and step.

    Subclasses define `leaf_at`, or `at`.
    """

    def at(self, info: StepInfo, spec: GradientSpec) -> Compressor:
        """Return the inner compressor around the leaf of a tensor and step."""
        inner = self.inner.at(info, spec)
        return map_leaf(inner, lambda leaf: self.leaf_at(leaf, info, spec))

    def leaf_at(self, leaf: Compressor, info: StepInfo, spec: GradientSpec) -> Compressor:
        """Return what takes the place of the innermost compressor."""
        return leaf

    def init(self, spec: GradientSpec) -> State:
        """Return the state of the compressor before the first step."""
        return self.at(StepInfo(), spec).init(spec)

    def step(self, gradient: np.ndarray, state: State) -> tuple[Payload, State]:
        """Refuse: what is stepped is what `at` returns."""
        self._refuse()

    def receive(self, payload: Payload) -> DecodedGradient:
        """Refuse: what reads a payload is what `at` returns."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise GradientError(
            f"{self.text()} only decides; step what its at(info, spec) returns for a step"
        )


@dataclass(frozen=True)
class Warmup(Scheduler):
    """Warm up: send dense first, then with falling ratios.

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

    id: ClassVar[str] = "warmup"
    argument_names: ClassVar[Mapping[str, str]] = {"dense_steps": "steps", "steps_each": "each"}
    inner: Compressor
    dense_steps: int = argument(0, least=0)
    ratios: tuple[float, ...] = RATIOS
    steps_each: int = argument(1, least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_tolerances(self.ratios, "ratios", 1)

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

    def leaf_at(self, leaf: Compressor, info: StepInfo, spec: GradientSpec) -> Compressor:
        """Return a leaf that keeps more at first."""
        if info.step < self.dense_steps:
            return Dense()
        own = leaf.kept_part(spec.size)
        if info.step >= self.steps or own is None:
            return leaf
        ratio = self.ratios[(info.step - self.dense_steps) // self.steps_each]
        return leaf if own >= ratio else leaf.with_keep(ratio)


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

    id: ClassVar[str] = "phases"
    inner: Compressor
    ratios: Mapping[str, float] = field(default_factory=dict)
    bounds: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if bool(self.ratios) == bool(self.bounds):
            raise ValueError("expected either ratios or bounds of phases, got both or neither")
        check_phases([*self.ratios, *self.bounds])
        _check_tolerances(self.ratios.values(), "ratios", 1)
        _check_tolerances(self.bounds.values(), "bounds", math.inf)
        leaf = leaf_of(self.inner)
        if leaf.keep is None if self.ratios else not isinstance(leaf, ErrorBounded):
            kind, such = ("ratio", "topk(0.01)") if self.ratios else ("bound", _BOUNDED)
            raise ValueError(
                f"expected a compressor with a {kind}, got {leaf.text()}; give one such as {such}"
            )

    @classmethod
    def parse(cls, call: Call, parser: CompressorParser) -> Compressor:
        """Build the compressor of a text; figures are ratios or bounds."""
        inner, arguments = parser.wrapped(call, PHASES)
        figures = {phase: argument.plain for phase, argument in arguments.items()}
        kind = "bounds" if isinstance(leaf_of(inner), ErrorBounded) else "ratios"
        return call.made(cls, inner=inner, **{kind: figures})

    def text(self) -> str:
        """Return the inner compressor's text and the figures of the phases."""
        values = self.ratios or self.bounds
        figures = ", ".join(f"{phase}={value!r}" for phase, value in values.items())
        return f"phases({self.inner.text()}, {figures})"

    def leaf_at(self, leaf: Compressor, info: StepInfo, spec: GradientSpec) -> Compressor:
        """Return a leaf with the ratio or the bound of the phase."""
        value = (self.ratios or self.bounds).get(info.phase)
        return leaf if value is None else leaf.with_tolerance(value)


_BOUNDED = "error_bounded(max_rel_l2=0.1)"


def _check_tolerances(values: Iterable[float], name: str, most: float) -> None:
    for value in values:
        if not 0 < value < most:
            raise ValueError(f"expected {name} above 0 and below {most:g}, got {value!r}")
