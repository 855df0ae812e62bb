"""Average shards: each rank reduces its own, and sends the mean to all.

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tensorcomp.gradients.base import Compressor, Payload, State
from tensorcomp.gradients.ddp import frames
from tensorcomp.gradients.ddp.communicator import Communicator
from tensorcomp.gradients.ddp.reduce_context import GroupWork, ReduceContext
from tensorcomp.gradients.ddp.shards import Shard, ShardedGradient, shards_of
from tensorcomp.gradients.payload.decoded import DecodedGradient, EmptyGradient
from tensorcomp.gradients.payload.states import join, split
from tensorcomp.gradients.wrappers.base import leaf_of, map_leaf
from tensorcomp.gradients.wrappers.packet_loss import divide


def reduce(works: Sequence[GroupWork], comm: Communicator, context: ReduceContext) -> bool:
    """Compress groups for the owners of their shards, and decode their means.

    A rank sends 2 (W − 1) / W times the bytes of its payload at most, whatever W is, and 8 · W
    bytes of lengths. With packet loss, chunks of what ranks send to owners are lost.

    Parameters
    ----------
    works : sequence of GroupWork
        The same groups in the same order on all ranks.
    comm : Communicator
    context : ReduceContext
        Its states are also those of the means that this rank compresses (`shards.MEAN_OF`).

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
    own: list[Payload] = []  # of this rank's shards, which need not be sent
    outgoing: list[list[bytes]] = [[] for _ in range(comm.world)]
    means: list[Payload] = []
    answer: list[bytes] = []

    def scatter(work: GroupWork) -> None:
        shards = shards_of(work.group, comm.world, context.sizes)
        for shard, payload in zip(shards, _compress(work, shards, comm.rank, context), strict=True):
            if shard.owner == comm.rank:
                own.append(payload)
            else:
                outgoing[shard.owner].append(payload.data)

    def average(work: GroupWork) -> None:
        for shard in shards_of(work.group, comm.world, context.sizes):
            if shard.owner == comm.rank:
                at = len(means)
                arrived = [
                    own[at]
                    if frame.sender == comm.rank
                    else Payload(frame.payloads[at].tobytes(), shard.spec)
                    for frame in received or ()
                ]
                means.append(_mean(work, shard, arrived, context))
                answer.append(means[-1].data)

    sent = frames.fill(works, outgoing, scatter, context)
    rows = comm.all_to_all_bytes([b"".join(frame) for frame in sent])
    received = frames.read_all(rows, comm, context)
    if received is None:
        return True
    (frame,) = frames.fill(works, [answer], average, context)
    rows = comm.all_gather_bytes(frame, f"{context.key} means")
    answers = frames.read_all(rows, comm, context) or []
    taken = [0] * comm.world
    for work in works:
        started = time.perf_counter()
        found = []
        for shard in shards_of(work.group, comm.world, context.sizes):
            index = taken[shard.owner]
            taken[shard.owner] += 1
            if shard.owner == comm.rank:
                found.append((shard, means[index].decoded or EmptyGradient()))
                continue
            data = answers[shard.owner].payloads[index].tobytes()
            if data:
                payload = Payload(data, shard.mean.spec)
                found.append((shard, shard.mean.compressor.receive(payload)))
        work.mean[:] = 0
        ShardedGradient(tuple(found)).add_to(work.mean, 1.0)
        work.decode_seconds += time.perf_counter() - started
    return False


@dataclass(frozen=True)
class _ShardedPayload(Payload):
    """Hold the payload of a group, one for each shard; `data` is empty."""

    shards: tuple[Payload, ...] = ()


@dataclass(frozen=True)
class _ShardedLeaf(Compressor):
    """Apply a compressor's leaf to each shard, unnoticed by its wrappers."""

    leaf: Compressor
    shards: tuple[Shard, ...]
    arrived: Callable[[Shard, DecodedGradient], DecodedGradient]

    def text(self) -> str:
        return self.leaf.text()

    def step(self, gradient: np.ndarray, state: State) -> tuple[Payload, State]:
        specs = [shard.spec for shard in self.shards]
        states = split(state, [spec.size for spec in specs], specs)
        payloads, found, after = [], [], []
        for shard, own in zip(self.shards, states, strict=True):
            payload, left = self.leaf.step(shard.take(gradient.reshape(-1)), own)
            payloads.append(payload)
            found.append((shard, self.arrived(shard, payload.decoded or EmptyGradient())))
            after.append(left)
        decoded = ShardedGradient(tuple(found))
        return _ShardedPayload(b"", state.spec, decoded, tuple(payloads)), join(after, state.spec)

    def receive(self, payload: Payload) -> DecodedGradient:
        return self.leaf.receive(payload)


def _compress(
    work: GroupWork, shards: tuple[Shard, ...], rank: int, context: ReduceContext
) -> Sequence[Payload]:
    """Return the payload of each shard of a group."""
    if work.silent or not shards:
        work.decoded = EmptyGradient()
        return [Payload(b"", shard.spec, EmptyGradient()) for shard in shards]
    loss = context.packet_loss

    def arrived(shard: Shard, decoded: DecodedGradient) -> DecodedGradient:
        """Return what the sender knows to have arrived."""
        if loss is None or not loss.acknowledged or shard.owner == rank:
            return decoded
        name = shard.mean.spec.name
        lost = loss.lost(
            shard.spec.size, name=name, step=context.step, sender=rank, phase=context.phase
        )
        return divide(decoded, lost, loss.chunk)[0]

    started = time.perf_counter()
    compressor = map_leaf(work.group.compressor, lambda leaf: _ShardedLeaf(leaf, shards, arrived))
    payload, work.new_state = compressor.step(work.gradient, work.state)
    work.encode_seconds += time.perf_counter() - started
    assert isinstance(payload, _ShardedPayload)
    work.decoded = payload.decoded
    work.payload_bytes = sum(len(one.data) for one in payload.shards)
    return payload.shards


def _mean(
    work: GroupWork, shard: Shard, payloads: Sequence[Payload], context: ReduceContext
) -> Payload:
    """Return the payload of the mean of this rank's shard."""
    group = shard.mean
    if not any(payload.data for payload in payloads):
        return Payload(b"", group.spec, EmptyGradient())
    started = time.perf_counter()
    leaf = leaf_of(work.group.compressor)
    decoded = [
        one.decoded or (leaf.receive(one) if one.data else EmptyGradient()) for one in payloads
    ]
    size, dtype = shard.spec.size, shard.spec.dtype
    if context.packet_loss is None:
        mean = np.zeros(size, dtype)
        for one in decoded:
            one.add_to(mean, 1.0 / len(decoded))
    else:
        mean, _ = context.packet_loss.mean(
            decoded,
            size,
            name=group.spec.name,
            step=context.step,
            phase=context.phase,
            owner=shard.owner,
            dtype=dtype,
        )
    averaged = time.perf_counter()
    payload, after = group.compressor.step(mean, context.states.state(group))
    context.states.stage(group, after)
    work.decode_seconds += averaged - started
    work.encode_seconds += time.perf_counter() - averaged
    return payload
