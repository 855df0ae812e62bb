"""Exchange payloads of a bucket in frames, whose heads ranks check.

::

    4 bytes   magic                      uint8   version
    uint8     flags                      uint16  0
    uint64    step                       uint64  schema
    uint32    payloads, then for each    uint32  its bytes
    the payloads, back to back

All integers are little-endian. The schema is a hash of the names, shapes, dtypes and compressors'
texts that the payloads are of: ranks whose schemas differ cannot decode each other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Compressor, GradientSpec, Payload
from tensorcomp.gradients.ddp.communicator import check_alike
from tensorcomp.gradients.ddp.reduce_context import GroupWork, ReduceContext
from tensorcomp.gradients.payload.decoded import DecodedGradient, EmptyGradient

MAGIC = b"tcgr"
VERSION = 1
NON_FINITE = 1
FAILED = 2
_HEAD = struct.Struct("<4sBBHQQI")
_MAX_BYTES = (1 << 32) - 1


@dataclass(frozen=True)
class Frame:
    """Hold a frame that was received; payloads are views, uint8.

    Flags are `NON_FINITE`: its gradient has a value that is not finite; `FAILED`: its rank failed,
    and the only payload is the message.
    """

    flags: int
    step: int
    schema: int
    payloads: tuple[np.ndarray, ...]


def exchange(
    works: Iterable[GroupWork],
    encode: Callable[[GroupWork], Iterable[tuple[int, bytes]]],
    context: ReduceContext,
    key: str | None = None,
) -> list[Frame] | None:
    """Encode groups, and exchange the payloads; None if some rank is not finite.

    Other ranks wait for the frames: what fails here is sent to them instead of payloads. Nothing is
    encoded where the context is not finite.

    Parameters
    ----------
    works : iterable of GroupWork
    encode : callable
        Yields the payloads of a group, each behind the rank that it is for, or behind 0 if all
        ranks get all payloads.
    context : ReduceContext
    key : str, optional
        Of an all-gather; there is an all-to-all without.

    Raises
    ------
    GradientError
        On all ranks, if one has failed, is at another step, or compresses something else, naming
        the ranks and what differs.
    """
    comm = context.comm
    flags = 0 if context.finite else NON_FINITE
    outgoing: list[list[bytes]] = [[] for _ in range(comm.world if key is None else 1)]
    for work in works if context.finite else ():
        try:
            for receiver, data in encode(work):
                outgoing[receiver].append(data)
        except Exception as error:
            message = f"{work.group.spec.name}: {type(error).__name__}: {error}".encode()
            flags, outgoing = FAILED, [[message] for _ in outgoing]
            break
    schema, step = context.layout.schema, context.info.step
    frames = [b"".join([head(flags, step, schema, sent), *sent]) for sent in outgoing]
    rows = comm.all_to_all_bytes(frames) if key is None else comm.all_gather_bytes(frames[0], key)
    received = [read(row, rank) for rank, row in enumerate(rows)]
    for rank, frame in enumerate(received):
        if frame.flags & FAILED:
            failure = frame.payloads[0].tobytes().decode(errors="replace")
            raise GradientError(f"rank {rank} could not compress: {failure}")
    if len({frame.schema for frame in received}) > 1:
        what = f"ranks compress different tensors in {context.key}"
        check_alike(comm, context.layout.lines, what)
    steps = {frame.step: rank for rank, frame in reversed([*enumerate(received)])}
    if len(steps) > 1:
        where = ", ".join(f"rank {rank} is at step {at}" for at, rank in sorted(steps.items()))
        raise GradientError(f"{where}; load the same checkpoint on all ranks")
    return None if any(frame.flags & NON_FINITE for frame in received) else received


def decode(
    compressor: Compressor, spec: GradientSpec, data: np.ndarray, sender: int
) -> DecodedGradient:
    """Decode a rank's payload of a tensor; no bytes stand for zeros."""
    if not data.size:
        return EmptyGradient()
    return compressor.receive(Payload(data.tobytes(), replace(spec, worker=sender)))


def head(flags: int, step: int, schema: int, payloads: Sequence[bytes]) -> bytes:
    """Return what goes before the payloads; refuse a payload of 4 GiB or more."""
    lengths = [len(payload) for payload in payloads]
    if max(lengths, default=0) > _MAX_BYTES:
        raise GradientError(
            f"expected less than 4 GiB of each tensor, got a payload of {max(lengths)} bytes; "
            "use a smaller density"
        )
    return _HEAD.pack(MAGIC, VERSION, flags, 0, step, schema, len(lengths)) + struct.pack(
        f"<{len(lengths)}I", *lengths
    )


def read(data: np.ndarray, sender: int) -> Frame:
    """Return the frame in the bytes of a rank; refuse other bytes and versions."""
    if data.size < _HEAD.size:
        raise GradientError(f"rank {sender} sent {data.size} bytes, which are no frame")
    magic, version, flags, _, step, schema, count = _HEAD.unpack(data[: _HEAD.size].tobytes())
    if magic != MAGIC or version != VERSION:
        raise GradientError(
            f"rank {sender} sent no frame of version {VERSION}; "
            "use the same version of tensorcomp on all ranks"
        )
    lengths, body = np.split(data[_HEAD.size :], [4 * count])
    if lengths.size != 4 * count:
        raise GradientError(f"rank {sender} sent a frame that ends in its head")
    ends = np.cumsum(lengths.view("<u4"), dtype=np.int64)
    if body.size != (ends[-1] if count else 0):
        raise GradientError(f"rank {sender} sent a frame whose payloads have other lengths")
    return Frame(flags, step, schema, tuple(np.split(body, ends)[:-1]))
