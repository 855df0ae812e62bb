"""Hold the arguments and results of functions that reduce a bucket."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tensorcomp.gradients.base import State, StepInfo
from tensorcomp.gradients.ddp.coding_groups import CodingGroup, Layout
from tensorcomp.gradients.ddp.communicator import Communicator
from tensorcomp.gradients.ddp.state_store import StateStore
from tensorcomp.gradients.payload.decoded import DecodedGradient, EmptyGradient
from tensorcomp.gradients.wrappers.packet_loss import PacketLoss


@dataclass
class GroupWork:
    """Hold a coding group in a step.

    Parameters
    ----------
    group : CodingGroup
    gradient : numpy.ndarray or torch.Tensor
        Of the group's shape and dtype, finite where `ReduceContext.finite`. A tensor where the
        group is compressed on its device.
    mean : numpy.ndarray or torch.Tensor
        (n,) where the mean over ranks goes. It may be the memory of `gradient`: nothing may be
        written to it while the gradient is still read.
    state : State
        Of the compressor, before the step.
    silent : bool
        Whether nothing is sent and the state stays as it is: the parameter was not used here.
    new_state : State or None
        What the step leaves; None for no change.
    decoded : DecodedGradient
        What this rank's payload, of `payload_bytes`, decodes to.
    """

    group: CodingGroup
    gradient: Any
    mean: Any
    state: State
    silent: bool = False
    new_state: State | None = None
    decoded: DecodedGradient = field(default_factory=EmptyGradient)
    payload_bytes: int = 0
    encode_seconds: float = 0.0
    decode_seconds: float = 0.0

    def encode(self) -> bytes:
        """Compress the gradient, and return the payload."""
        if self.silent:
            return b""
        started = time.perf_counter()
        payload, self.new_state = self.group.codec.step(self.gradient, self.state)
        self.encode_seconds = time.perf_counter() - started
        self.decoded = payload.decoded or self.decoded
        self.payload_bytes = len(payload.data)
        return payload.data


@dataclass
class ReduceContext:
    """Hold what all groups of a bucket have in common in a step.

    Parameters
    ----------
    comm : Communicator
    key : str
        Of the bucket; the same on all ranks.
    info : StepInfo
    layout : Layout
        Of the whole bucket.
    finite : bool
        Whether all values of the bucket on this rank are finite. Where they are not, nothing is
        compressed, and the function that reduces only informs the other ranks.
    states : StateStore
        Those of this rank, also of shards' means.
    bounds : mapping of str to tuple of int
        Where the shards of the model's parameters begin and end (`shards.partition`).
    packet_loss : PacketLoss or None
    """

    comm: Communicator
    key: str
    info: StepInfo
    layout: Layout
    finite: bool
    states: StateStore
    bounds: Mapping[str, tuple[int, ...]]
    packet_loss: PacketLoss | None = None
