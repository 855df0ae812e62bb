"""Base of compressors that choose another compressor for each tensor and step."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Compressor, GradientSpec, Payload, Reduction, State, StepInfo
from tensorcomp.gradients.payload.decoded import DecodedGradient


class Scheduler(Compressor):
    """Choose the compressor of a tensor at a step; never stepped itself. Subclasses define `at`."""

    inner: Compressor

    @property
    def reduction(self) -> Reduction:  # type: ignore[override]
        """That of the inner compressor."""
        return self.inner.reduction

    @property
    def unbiased(self) -> bool:  # type: ignore[override]
        """That of the inner compressor."""
        return self.inner.unbiased

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
