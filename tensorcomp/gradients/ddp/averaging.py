"""Average payloads that all ranks gather, or that owners of shards get.

Quantized all-reduce and sparse reduce are the same steps: every rank compresses each shard and
sends it to its owner (one all-to-all), the owner averages what it decodes, compresses the mean, and
all ranks receive the means of all shards (one all-gather). Every rank decodes the same bytes.

References
----------
Tang et al. 2021, "1-bit Adam: communication efficient large-scale training with Adam's convergence
speed" (compressed all-reduce with feedback on both sides); Li & Hoefler 2022, "Near-optimal sparse
allreduce for distributed deep learning".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensorcomp.gradients.base import Compressor, Payload, State
from tensorcomp.gradients.ddp.frames import decode, exchange
from tensorcomp.gradients.ddp.reduce_context import GroupWork, ReduceContext
from tensorcomp.gradients.ddp.shards import Shard, ShardedGradient, shards_of
from tensorcomp.gradients.payload.decoded import DecodedGradient, EmptyGradient
from tensorcomp.gradients.payload.states import join, split
from tensorcomp.gradients.wrappers.base import Outer, leaf_of, map_leaf
from tensorcomp.gradients.wrappers.packet_loss import divide


def gather(works: Sequence[GroupWork], context: ReduceContext) -> bool:
    """Compress groups, gather all ranks' payloads, and average them.

    Ranks are added in their order, by the same arithmetic everywhere: means are bit-identical.
    Groups and their order are the same on all ranks.

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
    received = exchange(works, lambda work: [(0, work.encode())], context, context.key)
    if received is None:
        return True
    for index, work in enumerate(works):
        started = time.perf_counter()
        group = work.group
        found = [
            work.decoded
            if sender == context.comm.rank
            else decode(group.codec, group.spec, frame.payloads[index], sender)
            for sender, frame in enumerate(received)
        ]
        work.mean[:] = 0
        for one in found:
            one.add_to(work.mean, 1.0 / context.comm.world)
        work.decode_seconds = time.perf_counter() - started
    return False


def reduce_scatter(works: Sequence[GroupWork], context: ReduceContext) -> bool:
    """Compress groups for the owners of their shards, and decode their means.

    A rank sends 2 (W − 1) / W times the bytes of its payload at most, whatever W is, and 8 · W
    bytes of lengths. With packet loss, chunks of what ranks send to owners are lost. Result and
    errors are those of `gather`; the context's states are also those of the means that this rank
    compresses (`shards.MEAN_OF`).
    """
    rank = context.comm.rank
    own: list[Payload] = []  # of this rank's shards, which need not be sent
    means: list[Payload] = []

    def scatter(work: GroupWork) -> Iterator[tuple[int, bytes]]:
        shards = shards_of(work.group, context.bounds)
        for shard, payload in zip(shards, _compress(work, shards, context), strict=True):
            if shard.owner == rank:
                own.append(payload)
            yield shard.owner, b"" if shard.owner == rank else payload.data

    def average(work: GroupWork) -> Iterator[tuple[int, bytes]]:
        for shard in shards_of(work.group, context.bounds):
            if shard.owner == rank:
                at = len(means)
                arrived = [frame.payloads[at] for frame in received or ()]
                means.append(_mean(work, shard, own[at], arrived, context))
                yield 0, means[at].data

    received = exchange(works, scatter, context)
    if received is None:
        return True
    answers = exchange(works, average, context, f"{context.key} means") or []
    arriving = [iter(frame.payloads) for frame in answers]
    known = iter(means)
    for work in works:
        started = time.perf_counter()
        found = []
        for shard in shards_of(work.group, context.bounds):
            data, mean = next(arriving[shard.owner]), shard.mean
            decoded = (
                next(known).decoded
                if shard.owner == rank
                else decode(mean.compressor, mean.spec, data, shard.owner)
            )
            found.append((shard, decoded or EmptyGradient()))
        work.mean[:] = 0
        ShardedGradient(tuple(found)).add_to(work.mean, 1.0)
        work.decode_seconds += time.perf_counter() - started
    return False


@dataclass(frozen=True)
class _ShardedLeaf(Outer, Compressor):  # type: ignore[override]
    """Apply a compressor's leaf to each shard, unnoticed by its wrappers."""

    inner: Compressor
    shards: tuple[Shard, ...]
    arrived: Callable[[Shard, DecodedGradient], DecodedGradient]
    payloads: list[Payload] = field(default_factory=list)  # of the shards, after a step

    def step(self, gradient: np.ndarray, state: State) -> tuple[Payload, State]:
        specs = [shard.spec for shard in self.shards]
        states = split(state, specs)
        flat = gradient.reshape(-1)
        found, after = [], []
        for shard, own in zip(self.shards, states, strict=True):
            payload, left = self.inner.step(flat[shard.where], own)
            self.payloads.append(payload)
            found.append((shard, self.arrived(shard, payload.decoded or EmptyGradient())))
            after.append(left)
        return Payload(b"", state.spec, ShardedGradient(tuple(found))), join(after, state.spec)


def _compress(
    work: GroupWork, shards: tuple[Shard, ...], context: ReduceContext
) -> Sequence[Payload]:
    """Return the payload of each shard of a group."""
    if work.silent or not shards:
        return [Payload(b"", shard.spec, EmptyGradient()) for shard in shards]
    loss = context.packet_loss

    def arrived(shard: Shard, decoded: DecodedGradient) -> DecodedGradient:
        """Return what the sender knows to have arrived."""
        if loss is None or not loss.acknowledged or shard.owner == context.comm.rank:
            return decoded
        lost = loss.lost(shard.spec.size, sender=context.comm.rank, **_chunks_of(shard, context))
        return divide(decoded, lost, loss.chunk)[0]

    started = time.perf_counter()
    leaf = _ShardedLeaf(leaf_of(work.group.compressor), shards, arrived)
    compressor = map_leaf(work.group.compressor, lambda _: leaf)
    payload, work.new_state = compressor.step(work.gradient, work.state)
    work.encode_seconds += time.perf_counter() - started
    work.decoded = payload.decoded or work.decoded
    work.payload_bytes = sum(len(one.data) for one in leaf.payloads)
    return leaf.payloads


def _chunks_of(shard: Shard, context: ReduceContext) -> dict[str, Any]:
    """Return what the chunks that packet loss drops depend on, beside their sender."""
    info = context.info
    return {"name": shard.mean.spec.name, "step": info.step, "phase": info.phase}


def _mean(
    work: GroupWork,
    shard: Shard,
    own: Payload,
    arrived: Sequence[np.ndarray],
    context: ReduceContext,
) -> Payload:
    """Return the payload of the mean of this rank's shard."""
    group, spec = shard.mean, shard.spec
    if not own.data and not any(data.size for data in arrived):
        return Payload(b"", group.spec, EmptyGradient())
    started = time.perf_counter()
    decoded = [
        own.decoded or EmptyGradient()
        if sender == shard.owner
        else decode(work.group.compressor, spec, data, sender)
        for sender, data in enumerate(arrived)
    ]
    if context.packet_loss is None:
        mean = np.zeros(spec.size, spec.dtype)
        for one in decoded:
            one.add_to(mean, 1.0 / len(decoded))
    else:
        chunks = _chunks_of(shard, context)
        mean, _ = context.packet_loss.mean(
            decoded, spec.size, owner=shard.owner, dtype=spec.dtype, **chunks
        )
    averaged = time.perf_counter()
    payload, after = group.compressor.step(mean, context.states.state(group))
    context.states.stage(group, after)
    work.decode_seconds += averaged - started
    work.encode_seconds += time.perf_counter() - averaged
    return payload
