"""The mean of payloads that every rank receives from every other: one all-gather for a bucket."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import numpy as np

from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Payload
from tensorcomp.gradients.ddp import frames
from tensorcomp.gradients.ddp.coding_groups import Context, UnitWork
from tensorcomp.gradients.ddp.communicator import Link
from tensorcomp.gradients.payload.decoded import DecodedGradient, EmptyGradient


def reduce(works: Sequence[UnitWork], link: Link, context: Context) -> bool:
    """Compress units, gather all ranks' payloads in one frame each, and average them.

    Ranks are added in their order, by the same arithmetic everywhere: means are bit-identical.

    Parameters
    ----------
    works : sequence of UnitWork
        The same units in the same order on all ranks.
    link : Link
    context : Context

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
    flags, payloads = _encode(works, context)
    head = frames.head(flags, context.step, context.layout.schema, payloads)
    rows = link.all_gather_bytes([head, *payloads], context.key)
    received = [frames.read(row, rank) for rank, row in enumerate(rows)]
    check(received, link, context)
    if not all(frame.finite for frame in received):
        return True
    for index, work in enumerate(works):
        _average(work, [frame.payloads[index] for frame in received], link.rank)
    return False


def check(received: Sequence[frames.Frame], link: Link, context: Context) -> None:
    """Raise on all ranks if one has failed, is at another step, or compresses something else.

    Raises
    ------
    GradientError
        Naming the ranks and what differs. All ranks must call this together.
    """
    for frame in received:
        if frame.flags & frames.FAILED:
            message = frame.payloads[0].tobytes().decode(errors="replace")
            raise GradientError(f"rank {frame.sender} could not compress: {message}")
    if len({frame.schema for frame in received}) > 1:
        _tell_difference(link, context)
    steps = {frame.step: frame.sender for frame in reversed(received)}
    if len(steps) > 1:
        told = ", ".join(f"rank {rank} is at step {step}" for step, rank in sorted(steps.items()))
        raise GradientError(f"{told}; load the same checkpoint on all ranks")


def _encode(works: Sequence[UnitWork], context: Context) -> tuple[int, list[bytes]]:
    if not context.finite:
        return frames.NON_FINITE, []
    payloads = []
    for work in works:
        if work.silent:
            work.sent = EmptyGradient()
            payloads.append(b"")
            continue
        started = time.perf_counter()
        try:
            payload, work.new_state = work.unit.codec.step(work.gradient, work.state)
        except Exception as error:  # the other ranks wait for this frame
            message = f"{work.unit.spec.name}: {type(error).__name__}: {error}"
            return frames.FAILED, [message.encode()]
        work.encode_seconds = time.perf_counter() - started
        work.sent = payload.decoded
        work.payload_bytes = len(payload.data)
        payloads.append(payload.data)
    return 0, payloads


def _average(work: UnitWork, payloads: Sequence[np.ndarray], rank: int) -> None:
    started = time.perf_counter()
    unit = work.unit
    parts: list[DecodedGradient] = []
    for sender, data in enumerate(payloads):
        if sender == rank and work.sent is not None:
            parts.append(work.sent)
        elif data.size:
            payload = Payload(data.tobytes(), unit.spec_of(sender))
            parts.append(unit.codec.receive(payload))
    work.mean[:] = 0
    for part in parts:
        part.add_to(work.mean, 1.0 / len(payloads))
    work.decode_seconds = time.perf_counter() - started


def _tell_difference(link: Link, context: Context) -> None:
    """Gather what every rank compresses, and raise."""
    rows = link.all_gather_bytes(json.dumps(context.layout.lines).encode(), "schemas")
    everyone = [json.loads(row.tobytes()) for row in rows]
    first = everyone[0]
    for rank, lines in enumerate(everyone):
        for index in range(max(len(first), len(lines))):
            one = first[index] if index < len(first) else "nothing"
            other = lines[index] if index < len(lines) else "nothing"
            if one != other:
                raise GradientError(
                    f"ranks compress different tensors: at place {index} of {context.key}, rank 0 "
                    f"has {one}, rank {rank} has {other}; build the model and the compressor alike"
                )
    raise GradientError("ranks compress different tensors")
