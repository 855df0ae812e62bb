"""The metrics of every step, taken while it is done."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from tensorcomp.gradients.ddp.coding_groups import Layout, Unit, UnitWork
from tensorcomp.gradients.ddp.communicator import Link
from tensorcomp.gradients.ddp.observers import Attendant, Step
from tensorcomp.gradients.monitoring.metrics import (
    History,
    StepMetrics,
    TensorMetrics,
    tensor_metrics,
)
from tensorcomp.gradients.payload.decoded import DecodedGradient, DenseGradient, EmptyGradient


class Recorder(Attendant):
    """Takes down bytes and times of every step, and errors of some.

    Parameters
    ----------
    link : Link
    plain : sequence of TensorMetrics
        Those of all gradients when they are sent as they are.
    observe : int
        Steps from one whose errors are measured to the next; 0 for none. Where gradients are
        compressed on their device, they are not measured.
    """

    def __init__(self, link: Link, plain: Sequence[TensorMetrics], observe: int) -> None:
        self.history = History()
        self._link = link
        self._plain = tuple(plain)
        self._observe = observe
        self._observing = False
        self._gradients: dict[int, np.ndarray] = {}
        self._nonfinite: dict[int, int] = {}
        self._tensors: list[TensorMetrics] = []

    def wants(self, step: Step) -> bool:
        """Return whether errors are measured in this step."""
        self._tensors = []
        self._observing = self._observe > 0 and step.info.step % self._observe == 0
        return self._observing

    def loaded(self, step: Step, layout: Layout, values: np.ndarray) -> None:
        """Keep the gradients, which are overwritten, and count what is not finite."""
        gradients = {i: _elements(unit, values) for i, unit in enumerate(layout.units)}
        self._nonfinite = {i: int((~np.isfinite(g)).sum()) for i, g in gradients.items()}
        if self._observing:
            self._gradients = gradients

    def reduced(
        self, step: Step, layout: Layout, works: Sequence[UnitWork], buffer: torch.Tensor
    ) -> None:
        """Take down what each unit took; where a value was not finite, nothing was sent."""
        if not works:
            for index, unit in enumerate(layout.units):
                found = self._nonfinite.get(index, 0)
                self._tensors.append(_unsent(unit, found))
        for index, work in enumerate(works):
            observed = self._observing and work.unit.native is None
            self._tensors.append(
                tensor_metrics(
                    work.unit.spec,
                    work.unit.label,
                    work.payload_bytes,
                    self._sent(index, work) if observed else work.sent or EmptyGradient(),
                    gradient=self._gradients.get(index) if observed else None,
                    state=(work.new_state or work.state) if observed else None,
                    encode_seconds=work.encode_seconds,
                    decode_seconds=work.decode_seconds,
                )
            )
        self._gradients, self._nonfinite = {}, {}

    def _sent(self, index: int, work: UnitWork) -> DecodedGradient:
        """Return what was sent, also where its memory holds the mean by now."""
        if isinstance(work.sent, DenseGradient) and np.may_share_memory(
            work.sent.values, work.mean
        ):
            return DenseGradient(self._gradients[index])
        return work.sent or EmptyGradient()

    def ended(self, step: Step) -> None:
        """Add the step to the history."""
        exchanges = self._link.take_exchanges()
        self.history.add(
            StepMetrics(
                step.info.step,
                tuple(self._tensors),
                framed_bytes=sum(one.nbytes for one in exchanges),
                wire_bytes=round(sum(one.bytes_sent for one in exchanges)),
                encode_seconds=sum(tensor.encode_seconds for tensor in self._tensors),
                communicate_seconds=sum(one.seconds for one in exchanges),
                decode_seconds=sum(tensor.decode_seconds for tensor in self._tensors),
                skipped=step.flagged,
            )
        )
        self._tensors = []

    def passed(self, step: Step) -> None:
        """Add a step of which only the bytes are known."""
        raw = sum(tensor.raw_bytes for tensor in self._plain)
        wire = round(2 * (self._link.world - 1) / self._link.world * raw)
        self.history.add(StepMetrics(step.info.step, self._plain, raw, wire))


def _elements(unit: Unit, values: np.ndarray) -> np.ndarray:
    """Return a copy of a unit's elements."""
    return np.concatenate([values[piece.start : piece.stop] for piece in unit.pieces])


def _unsent(unit: Unit, nonfinite: int) -> TensorMetrics:
    """Return the metrics of a unit of which nothing was sent."""
    spec = unit.spec
    return TensorMetrics(spec.name, spec.size, unit.label, spec.nbytes, 0, 0, nonfinite=nonfinite)
