"""Average payloads that all ranks gather: one all-gather per bucket."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from tensorcomp.gradients.base import Payload
from tensorcomp.gradients.ddp import frames
from tensorcomp.gradients.ddp.communicator import Communicator
from tensorcomp.gradients.ddp.reduce_context import GroupWork, ReduceContext
from tensorcomp.gradients.payload.decoded import DecodedGradient, EmptyGradient


def reduce(works: Sequence[GroupWork], comm: Communicator, context: ReduceContext) -> bool:
    """Compress groups, gather all ranks' payloads, and average them.

    Ranks are added in their order, by the same arithmetic everywhere: means are bit-identical.

    Parameters
    ----------
    works : sequence of GroupWork
        The same groups in the same order on all ranks.
    comm : Communicator
    context : ReduceContext

    Returns
    -------
    bool
        Whether some rank's gradient has a value that is not finite; means and states are untouched
        then.

    Raises
    ------
    GradientError
        On all ranks, if a rank failed to compress, or compresses something else.
    CodecError
        If a payload is damaged.
    """
    payloads: list[bytes] = []
    (frame,) = frames.fill(works, [payloads], lambda work: payloads.append(encode(work)), context)
    received = frames.read_all(comm.all_gather_bytes(frame, context.key), comm, context)
    if received is None:
        return True
    for index, work in enumerate(works):
        _average(work, [one.payloads[index] for one in received], comm.rank)
    return False


def encode(work: GroupWork) -> bytes:
    """Compress a group's gradient, and return the payload."""
    if work.silent:
        work.decoded = EmptyGradient()
        return b""
    started = time.perf_counter()
    payload, work.new_state = work.group.codec.step(work.gradient, work.state)
    work.encode_seconds = time.perf_counter() - started
    work.decoded = payload.decoded
    work.payload_bytes = len(payload.data)
    return payload.data


def _average(work: GroupWork, payloads: Sequence[np.ndarray], rank: int) -> None:
    """Put the mean of all ranks' payloads into a group's mean."""
    started = time.perf_counter()
    group = work.group
    found: list[DecodedGradient] = []
    for sender, data in enumerate(payloads):
        if sender == rank and work.decoded is not None:
            found.append(work.decoded)
        elif data.size:
            found.append(group.codec.receive(Payload(data.tobytes(), group.spec_of(sender))))
    work.mean[:] = 0
    for one in found:
        one.add_to(work.mean, 1.0 / len(payloads))
    work.decode_seconds = time.perf_counter() - started
