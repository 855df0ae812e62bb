"""What a rank sends of a bucket: a head that others can check, then payloads.

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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import xxhash

from tensorcomp.errors import GradientError

MAGIC = b"tcgr"
VERSION = 1
NON_FINITE = 1
FAILED = 2
_HEAD = struct.Struct("<4sBBHQQI")
_MOST_BYTES = (1 << 32) - 1


@dataclass(frozen=True)
class Frame:
    """A frame that was received.

    Parameters
    ----------
    sender : int
        Its rank.
    flags : int
        `NON_FINITE`: its gradient has a value that is not finite; `FAILED`: it failed, and its only
        payload is the message.
    step : int
    schema : int
    payloads : tuple of numpy.ndarray
        (length,) uint8 each: views of what was received.
    """

    sender: int
    flags: int
    step: int
    schema: int
    payloads: tuple[np.ndarray, ...]

    @property
    def finite(self) -> bool:
        """Whether all values of the sender's gradient are finite."""
        return not self.flags & NON_FINITE


def schema_hash(lines: Iterable[str]) -> int:
    """Return the hash of what payloads are of: a line each."""
    return xxhash.xxh3_64_intdigest("\n".join(lines).encode())


def head(flags: int, step: int, schema: int, payloads: Sequence[bytes]) -> bytes:
    """Return what goes before the payloads.

    Raises
    ------
    GradientError
        If a payload has 4 GiB or more.
    """
    lengths = [len(payload) for payload in payloads]
    if max(lengths, default=0) > _MOST_BYTES:
        raise GradientError(
            f"a payload of {max(lengths)} bytes: a frame holds less than 4 GiB of each tensor; "
            "use a smaller density"
        )
    return _HEAD.pack(MAGIC, VERSION, flags, 0, step, schema, len(lengths)) + struct.pack(
        f"<{len(lengths)}I", *lengths
    )


def read(data: np.ndarray, sender: int) -> Frame:
    """Return the frame in the bytes of a rank.

    Parameters
    ----------
    data : numpy.ndarray
        (length,) uint8.
    sender : int

    Raises
    ------
    GradientError
        If the bytes are no frame, or one of another version.
    """
    if data.size < _HEAD.size:
        raise GradientError(f"rank {sender} sent {data.size} bytes, which are no frame")
    magic, version, flags, _, step, schema, count = _HEAD.unpack(data[: _HEAD.size].tobytes())
    if magic != MAGIC or version != VERSION:
        raise GradientError(
            f"rank {sender} sent no frame of version {VERSION}; "
            "use the same version of tensorcomp on all ranks"
        )
    start = _HEAD.size + 4 * count
    lengths = data[_HEAD.size : start]
    if lengths.size != 4 * count:
        raise GradientError(f"rank {sender} sent a frame that ends in its head")
    ends = start + np.cumsum(lengths.view("<u4"), dtype=np.uint64).astype(np.int64)
    if (int(ends[-1]) if count else start) != data.size:
        raise GradientError(f"rank {sender} sent a frame whose payloads have other lengths")
    payloads = []
    for end in ends.tolist():
        payloads.append(data[start:end])
        start = end
    return Frame(sender, flags, step, schema, tuple(payloads))
