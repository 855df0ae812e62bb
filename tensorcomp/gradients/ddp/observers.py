"""Observe reductions: record metrics, and check that ranks are equal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import xxhash

from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import GradientSpec, StepInfo
from tensorcomp.gradients.ddp.coding_groups import Layout
from tensorcomp.gradients.ddp.communicator import Communicator
from tensorcomp.gradients.ddp.reduce_context import GroupWork
from tensorcomp.gradients.monitoring.metrics import (
    History,
    StepMetrics,
    TensorMetrics,
    tensor_metrics,
)
from tensorcomp.gradients.payload.decoded import DecodedGradient, DenseGradient


@dataclass
class Step:
    """Hold a step of training that is under way.

    Parameters
    ----------
    info : StepInfo
    scale : float
        What gradients are multiplied by on their way here (`torch.amp.GradScaler`).
    flagged : bool
        Whether some rank had a value that is not finite.
    sent : set of str
        The parameters whose gradients were sent as a whole, or compressed.
    watched : bool
        Whether some observer has to see the gradients.
    passed : bool
        Whether gradients are averaged as they are, without being seen here.
    hashes : dict of str to int
        Of each bucket's means, by the name of its first parameter.
    tensors : list of TensorMetrics
    """

    info: StepInfo = field(default_factory=StepInfo)
    scale: float = 1.0
    flagged: bool = False
    sent: set[str] = field(default_factory=set)
    watched: bool = False
    passed: bool = False
    hashes: dict[str, int] = field(default_factory=dict)
    tensors: list[TensorMetrics] = field(default_factory=list)


class Observer:
    """Observe steps; what it does between ranks, it does on all of them alike.

    It has to see the gradients every so many steps; of none with 0.
    """

    def __init__(self, comm: Communicator, every: int = 0) -> None:
        self._comm = comm
        self._every = every
        self._due = False

    def wants(self, step: Step) -> bool:
        """Return whether it has to see the gradients of a step that begins."""
        self._due = self._every > 0 and step.info.step % self._every == 0
        return self._due

    def loaded(self, step: Step, layout: Layout, values: np.ndarray) -> None:
        """See a bucket's gradients (n,), before they are compressed.

        If some observer wants to, and in any case where a value here is not finite.
        """

    def reduced(
        self, step: Step, layout: Layout, works: Sequence[GroupWork], buffer: torch.Tensor
    ) -> None:
        """See a bucket that is done, with its means (n,) as the model gets them.

        There are no works where some rank had a value that is not finite.
        """

    def ended(self, step: Step) -> None:
        """See a step that is done; its states are committed, or dropped if flagged."""


class RankCheck(Observer):
    """Compare a hash of every bucket's means over the ranks."""

    def reduced(
        self, step: Step, layout: Layout, works: Sequence[GroupWork], buffer: torch.Tensor
    ) -> None:
        """Hash a bucket."""
        if self._due:
            digest = xxhash.xxh3_64_intdigest(buffer.detach().view(torch.uint8).cpu().numpy())
            step.hashes[layout.groups[0].key[0]] = digest

    def ended(self, step: Step) -> None:
        """Compare the hashes of all ranks; all refuse different ones."""
        if not self._due:
            return
        own = np.array([*step.hashes.values()], np.uint64).tobytes()
        first, *others = [row.view(np.uint64) for row in self._comm.all_gather_bytes(own, "hashes")]
        for rank, row in enumerate(others, 1):
            if not np.array_equal(row, first):
                place = int(np.argmax(row != first)) if row.size == first.size else 0
                begin = list(step.hashes)[place]
                raise GradientError(
                    f"after step {step.info.step}, rank {rank} has other gradients than rank 0 in "
                    f"the bucket that begins with {begin}; use the same versions of NumPy and "
                    "tensorcomp on all ranks"
                )


class Recorder(Observer):
    """Record bytes and times of every step, and errors of some.

    Where gradients are compressed on their device, errors are not measured.
    """

    def __init__(self, comm: Communicator, observe: int, specs: Iterable[GradientSpec]) -> None:
        super().__init__(comm, observe)
        self.history = History()
        self._plain = tuple(
            TensorMetrics(one.name, one.size, "dense", one.nbytes, one.nbytes, one.size)
            for one in specs
        )
        self._gradients: list[np.ndarray] = []

    def loaded(self, step: Step, layout: Layout, values: np.ndarray) -> None:
        """Keep the gradients, which are overwritten."""
        self._gradients = [np.array(values[group.where]) for group in layout.groups]

    def reduced(
        self, step: Step, layout: Layout, works: Sequence[GroupWork], buffer: torch.Tensor
    ) -> None:
        """Record each group's metrics; nothing was sent of non-finite values."""
        gradients, self._gradients = self._gradients, []
        for index, group in enumerate(layout.groups if not works else ()):
            count = int((~np.isfinite(gradients[index])).sum()) if gradients else 0
            spec = group.spec
            step.tensors.append(
                TensorMetrics(spec.name, spec.size, group.label, spec.nbytes, 0, 0, nonfinite=count)
            )
        for index, work in enumerate(works):
            observed = self._due and work.group.native is None
            gradient = gradients[index] if observed else None
            step.tensors.append(
                tensor_metrics(
                    work.group.spec,
                    work.group.label,
                    work.payload_bytes,
                    _decoded(work, gradient),
                    gradient=gradient,
                    state=(work.new_state or work.state) if observed else None,
                    encode_seconds=work.encode_seconds,
                    decode_seconds=work.decode_seconds,
                )
            )

    def ended(self, step: Step) -> None:
        """Add the step to the history.

        Of a step that has passed only the bytes are known.
        """
        if step.passed:
            raw = sum(tensor.raw_bytes for tensor in self._plain)
            wire = round(2 * (self._comm.world - 1) / self._comm.world * raw)
            self.history.add(StepMetrics(step.info.step, self._plain, raw, wire))
            return
        exchanges = self._comm.take_exchanges()
        self.history.add(
            StepMetrics(
                step.info.step,
                tuple(step.tensors),
                framed_bytes=sum(one.nbytes for one in exchanges),
                wire_bytes=round(sum(one.bytes_sent for one in exchanges)),
                encode_seconds=sum(tensor.encode_seconds for tensor in step.tensors),
                communicate_seconds=sum(one.seconds for one in exchanges),
                decode_seconds=sum(tensor.decode_seconds for tensor in step.tensors),
                skipped=step.flagged,
            )
        )


def _decoded(work: GroupWork, gradient: np.ndarray | None) -> DecodedGradient:
    """Return what was sent, also where its memory holds the mean by now."""
    if gradient is None or not isinstance(work.decoded, DenseGradient):
        return work.decoded
    overwritten = np.may_share_memory(work.decoded.values, work.mean)
    return DenseGradient(gradient) if overwritten else work.decoded
