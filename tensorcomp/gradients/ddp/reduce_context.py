"""Hold the arguments and results of functions that reduce a bucket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tensorcomp.gradients.base import State
from tensorcomp.gradients.ddp.coding_groups import CodingGroup, Layout
from tensorcomp.gradients.ddp.state_store import StateStore
from tensorcomp.gradients.payload.decoded import DecodedGradient
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
    decoded : DecodedGradient or None
        What this rank's payload decodes to.
    payload_bytes : int
        Of this rank's payload.
    encode_seconds, decode_seconds : float
        What the codecs took.
    """

    group: CodingGroup
    gradient: Any
    mean: Any
    state: State
    silent: bool = False
    new_state: State | None = None
    decoded: DecodedGradient | None = None
    payload_bytes: int = 0
    encode_seconds: float = 0.0
    decode_seconds: float = 0.0


@dataclass
class ReduceContext:
    """Hold what all groups of a bucket have in common in a step.

    Parameters
    ----------
    key : str
        Of the bucket; the same on all ranks.
    step : int
    phase : str
        Of training, as in `StepInfo`.
    layout : Layout
        Of the whole bucket.
    finite : bool
        Whether all values of the bucket on this rank are finite. Where they are not, nothing is
        compressed, and the function that reduces only informs the other ranks.
    states : StateStore
        Those of this rank, also of shards' means. What is staged counts once the step is done, and
        is dropped with it.
    sizes : mapping of str to int
        Elements of every parameter of the model, in the same order on all ranks.
    packet_loss : PacketLoss or None
    """

    key: str
    step: int
    phase: str
    layout: Layout
    finite: bool
    states: StateStore
    sizes: Mapping[str, int]
    packet_loss: PacketLoss | None = None
