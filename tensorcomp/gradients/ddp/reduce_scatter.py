"""The mean that owners make: each rank reduces a part of every gradient, and sends it to all.

Quantized all-reduce and sparse reduce are the same steps: every rank compresses the part of each
owner and sends it there (one all-to-all), the owner averages what it decodes, compresses the mean,
and all ranks receive the means of all owners (one all-gather). Every rank decodes the same bytes.

References
----------
Tang et al. 2021, "1-bit Adam: communication efficient large-scale training with Adam's convergence
speed" (compressed all-reduce with feedback on both sides); Li & Hoefler 2022, "Near-optimal sparse
allreduce for distributed deep learning".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tensorcomp.gradients.base import Compressor, GradientSpec, Payload, State, leaf_of, map_leaf
from tensorcomp.gradients.ddp import frames
from tensorcomp.gradients.ddp.coding_groups import Context, UnitWork
from tensorcomp.gradients.ddp.communicator import Link
from tensorcomp.gradients.ddp.gathering import check
from tensorcomp.gradients.ddp.partition import Part, ShardedGradient
from tensorcomp.gradients.ddp.shard_means import part_of, parts_of
from tensorcomp.gradients.payload.decoded import DecodedGradient, EmptyGradient
from tensorcomp.gradients.payload.states import join, split
from tensorcomp.gradients.wrappers.packet_loss import divide


def reduce(works: Sequence[UnitWork], link: Link, context: Context) -> bool:
    """Compress units for their owners, and average what the owners' means decode to.

    A rank sends 2 (W − 1) / W times the bytes of its payload at most, whatever W is, and 8 · W
    bytes of lengths. With a loss simulator, chunks of what ranks send to owners are lost.

    Parameters
    ----------
    works : sequence of UnitWork
        The same units in the same order on all ranks.
    link : Link
    context : Context
        In its memory each owner keeps the state of the means that it compresses, under the names
        of parameters with `parts.OWNED` before them.

    Returns
    -------
    bool
        Whether some rank's gradient has a value that is not finite; means and states are untouched
        then.

    Raises
    ------
    GradientError
        On all ranks, if a rank failed to compress, or compresses something else.
    """
    cuts = [parts_of(work.unit, link.world, context) for work in works]
    own: list[Payload] = []
    outgoing = _to_owners(works, cuts, own, link, context)
    rows = link.all_to_all_bytes(outgoing)
    received = [frames.read(row, rank) for rank, row in enumerate(rows)]
    check(received, link, context)
    if not all(frame.finite for frame in received):
        return True
    means: list[Payload] = []
    answer = _to_all(works, cuts, own, received, means, link, context)
    rows = link.all_gather_bytes(answer, f"{context.key} means")
    answers = [frames.read(row, rank) for rank, row in enumerate(rows)]
    check(answers, link, context)
    _from_owners(works, cuts, answers, means, link.rank)
    return False


@dataclass(frozen=True)
class _InParts(Payload):
    """The payload of a unit, one for each part."""

    parts: tuple[Payload, ...] = ()


@dataclass(frozen=True)
class _Cut(Compressor):
    """The leaf of a compressor, applied to each part on its own.

    What is wrapped around it, residuals say, knows nothing of parts.
    """

    leaf: Compressor
    parts: tuple[Part, ...]
    arrived: Callable[[Part, DecodedGradient], DecodedGradient]

    def text(self) -> str:
        return self.leaf.text()

    def step(self, gradient: np.ndarray, state: State) -> tuple[Payload, State]:
        specs = [part.spec for part in self.parts]
        states = split(state, [spec.size for spec in specs], specs)
        payloads, left = [], []
        for part, own in zip(self.parts, states, strict=True):
            payload, after = self.leaf.step(part.take(gradient.reshape(-1)), own)
            payloads.append(payload)
            left.append(after)
        pairs = zip(self.parts, payloads, strict=True)
        sent = ShardedGradient(tuple((part, self.arrived(part, _sent(one))) for part, one in pairs))
        data = b""  # what is sent is in the parts
        return _InParts(data, state.spec, sent, tuple(payloads)), join(left, state.spec)

    def receive(self, payload: Payload) -> DecodedGradient:
        return self.leaf.receive(payload)


def _to_owners(
    works: Sequence[UnitWork],
    cuts: Sequence[tuple[Part, ...]],
    own: list[Payload],
    link: Link,
    context: Context,
) -> list[bytes]:
    """Return a frame for each owner; add the payloads that this rank owns itself to `own`."""
    step, schema = context.step, context.layout.schema
    if not context.finite:
        return [frames.head(frames.NON_FINITE, step, schema, [])] * link.world
    outgoing: list[list[bytes]] = [[] for _ in range(link.world)]
    for work, parts in zip(works, cuts, strict=True):
        try:
            payloads = _compress(work, parts, link.rank, context)
        except Exception as error:  # the other ranks wait for this frame
            message = _message(work, error)
            head = frames.head(frames.FAILED, step, schema, [message])
            return [head + message] * link.world
        for part, payload in zip(parts, payloads, strict=True):
            if part.owner == link.rank:
                own.append(payload)
            else:
                outgoing[part.owner].append(payload.data)
    return [b"".join([frames.head(0, step, schema, sent), *sent]) for sent in outgoing]


def _compress(
    work: UnitWork, parts: tuple[Part, ...], rank: int, context: Context
) -> Sequence[Payload]:
    if work.silent or not parts:
        work.sent = EmptyGradient()
        return [Payload(b"", part.spec, EmptyGradient()) for part in parts]
    loss = context.loss

    def arrived(part: Part, sent: DecodedGradient) -> DecodedGradient:
        """Return what the sender is told of."""
        if loss is None or not loss.acknowledged or part.owner == rank:
            return sent
        lost = loss.lost(
            part.spec.size,
            name=part.owned.spec.name,
            step=context.step,
            sender=rank,
            phase=context.phase,
        )
        return divide(sent, lost, loss.chunk)[0]

    started = time.perf_counter()
    compressor = map_leaf(work.unit.compressor, lambda leaf: _Cut(leaf, parts, arrived))
    payload, work.new_state = compressor.step(work.gradient, work.state)
    work.encode_seconds += time.perf_counter() - started
    assert isinstance(payload, _InParts)
    work.sent = payload.decoded
    work.payload_bytes = sum(len(one.data) for one in payload.parts)
    return payload.parts


def _to_all(
    works: Sequence[UnitWork],
    cuts: Sequence[tuple[Part, ...]],
    own: Sequence[Payload],
    received: Sequence[frames.Frame],
    means: list[Payload],
    link: Link,
    context: Context,
) -> list[bytes]:
    """Return the frame of the means that this rank owns, and add their payloads to `means`."""
    step, schema = context.step, context.layout.schema
    for work, parts in zip(works, cuts, strict=True):
        part = part_of(parts, link.rank)
        if part is None:
            continue
        at = len(means)
        try:
            payloads = [
                own[at] if frame.sender == link.rank else _payload(frame.payloads[at], part.spec)
                for frame in received
            ]
            means.append(_mean(work, part, payloads, link.rank, context))
        except Exception as error:  # the other ranks wait for this frame
            message = _message(work, error)
            return [frames.head(frames.FAILED, step, schema, [message]), message]
    data = [payload.data for payload in means]
    return [frames.head(0, step, schema, data), *data]


def _mean(
    work: UnitWork, part: Part, payloads: Sequence[Payload], rank: int, context: Context
) -> Payload:
    """Return the payload of a part's mean."""
    if not any(payload.data for payload in payloads):
        return Payload(b"", part.owned.spec, EmptyGradient())
    started = time.perf_counter()
    leaf = leaf_of(work.unit.compressor)
    sent = [
        payload.decoded
        if payload.decoded is not None
        else (leaf.receive(payload) if payload.data else EmptyGradient())
        for payload in payloads
    ]
    size, dtype = part.spec.size, part.spec.dtype
    if context.loss is None:
        mean = np.zeros(size, dtype)
        for one in sent:
            one.add_to(mean, 1.0 / len(sent))
    else:
        mean, _ = context.loss.mean(
            sent,
            size,
            name=part.owned.spec.name,
            step=context.step,
            phase=context.phase,
            owner=rank,
            dtype=dtype,
        )
    decoded = time.perf_counter()
    state = context.kept.state(part.owned)
    payload, after = part.owned.compressor.step(mean, state)
    context.kept.stage(part.owned, after)
    work.decode_seconds += decoded - started
    work.encode_seconds += time.perf_counter() - decoded
    return payload


def _from_owners(
    works: Sequence[UnitWork],
    cuts: Sequence[tuple[Part, ...]],
    answers: Sequence[frames.Frame],
    means: Sequence[Payload],
    rank: int,
) -> None:
    """Put the means of all owners into the units."""
    taken = [0] * len(answers)
    for work, parts in zip(works, cuts, strict=True):
        started = time.perf_counter()
        found = []
        for part in parts:
            index = taken[part.owner]
            taken[part.owner] += 1
            if part.owner == rank:
                found.append((part, _sent(means[index])))
                continue
            payload = _payload(answers[part.owner].payloads[index], part.owned.spec)
            if payload.data:
                found.append((part, part.owned.compressor.receive(payload)))
        work.mean[:] = 0
        ShardedGradient(tuple(found)).add_to(work.mean, 1.0)
        work.decode_seconds += time.perf_counter() - started


def _payload(data: np.ndarray, spec: GradientSpec) -> Payload:
    return Payload(data.tobytes(), spec)


def _sent(payload: Payload) -> DecodedGradient:
    return payload.decoded or EmptyGradient()


def _message(work: UnitWork, error: Exception) -> bytes:
    return f"{work.unit.spec.name}: {type(error).__name__}: {error}".encode()
