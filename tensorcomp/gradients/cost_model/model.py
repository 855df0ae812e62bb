"""Predict bytes and seconds of gradient exchanges, and break-even bandwidth.

Every rank gives a payload of S bytes, all by one kind of collective; α is the seconds of a message,
β the bytes per second of a rank's link. A message costs α, and all bytes that a rank sends are
divided by β (Hockney's model).

==============  =================================================  ===================  ==========
reduction       how                                                bytes a rank sends   messages
==============  =================================================  ===================  ==========
sum             ring all-reduce                                    2 (W − 1) / W · S    2 (W − 1)
gather          ring all-gather of all payloads                    (W − 1) · S          W − 1
reduce_scatter  sizes, shards to their owners, their means to all  2 (W − 1) / W · S    3 (W − 1)
==============  =================================================  ===================  ==========

References
----------
Hockney 1994, "The communication challenge for MPI"; Patarasuk & Yuan 2009, "Bandwidth optimal
all-reduce algorithms for clusters of workstations"; Agarwal et al. 2022, "On the utility of
gradient compression in distributed training systems".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Reduction

TCP_OVERHEAD = 1.05  # bytes of Ethernet frames for each byte given to a socket
BUCKET_BYTES = 25 * 2**20  # of gradients reduced at once, DistributedDataParallel's default
_MESSAGES: dict[Reduction, int] = {"sum": 2, "gather": 1, "reduce_scatter": 3}  # per other rank


class Link(NamedTuple):
    """Describe how a rank reaches the others.

    Parameters
    ----------
    bandwidth : float
        Bytes per second that a rank sends, of what is given to a socket; above 0.
    latency : float
        Seconds of a message without bytes.
    """

    bandwidth: float
    latency: float = 0.0

    @classmethod
    def of_line(cls, bits: float, latency: float = 0.0) -> Link:
        """Return the link of TCP sockets on a line of nominal bits per second."""
        return cls(bits / 8 / TCP_OVERHEAD, latency)


@dataclass(frozen=True)
class Cost:
    """Hold what a rank codes and exchanges in a step.

    Parameters
    ----------
    reduction : str
        ``"gather"``, ``"reduce_scatter"`` or ``"sum"``.
    payload_bytes : float
        Bytes of its own payload; of a ``"sum"``, of all arrays that are summed. The mean of a
        reduce-scatter is taken to be as large.
    encode, decode : float
        Seconds of its own payload.
    collectives : int
        How many exchanges: one for each bucket, times the phases of a ``"sum"``.

    Raises
    ------
    GradientError
        If the reduction is unknown.

    Examples
    --------
    >>> [Cost(reduction, 1000).bytes_sent(4) for reduction in ("sum", "gather", "reduce_scatter")]
    [1500.0, 3000.0, 1500.0]
    """

    reduction: Reduction
    payload_bytes: float
    encode: float = 0.0
    decode: float = 0.0
    collectives: int = 1

    def __post_init__(self) -> None:
        if self.reduction not in _MESSAGES:
            known = ", ".join(_MESSAGES)
            raise GradientError(f"expected a reduction of {known}, got {self.reduction!r}")

    def bytes_sent(self, world: int) -> float:
        """Return the bytes that each of `world` ranks sends, without `TCP_OVERHEAD`."""
        shares = (world - 1) if self.reduction == "gather" else 2 * (world - 1) / world
        return float(shares * self.payload_bytes)

    def messages(self, world: int) -> int:
        """Return how many messages follow on each other in all collectives."""
        return self.collectives * _MESSAGES[self.reduction] * (world - 1)

    def communication(self, world: int, link: Link) -> float:
        """Return the seconds of the exchanges."""
        return self.messages(world) * link.latency + self.bytes_sent(world) / link.bandwidth

    def coding(self, world: int) -> tuple[float, float]:
        """Return the seconds that a rank encodes, and that it decodes.

        With ``"gather"`` it decodes all ranks' payloads; as the owner of a shard it decodes all
        ranks' payloads of it, encodes their mean, and decodes the means of all shards.
        """
        if self.reduction == "gather":
            return self.encode, self.decode * world
        if self.reduction == "reduce_scatter":
            return self.encode * (1 + 1 / world), self.decode * 2
        return self.encode, self.decode

    def work(self, world: int, link: Link) -> float:
        """Return the seconds of coding and exchanges, one after the other."""
        return sum(self.coding(world)) + self.communication(world, link)


def bucket_count(nbytes: float) -> int:
    """Return into how many buckets gradients are divided, at least 1."""
    return max(1, math.ceil(nbytes / BUCKET_BYTES))


def step_seconds(backward: float, work: float, buckets: int = 1) -> float:
    """Return the seconds of a backward pass that overlaps the exchange.

    Buckets of equal size are ready at equal intervals, and one thread codes and exchanges them one
    after another. What it takes from the processor's time for the backward pass is not counted.

    Parameters
    ----------
    backward : float
        Seconds of the backward pass alone.
    work : float
        Seconds of coding and exchanging all buckets.
    buckets : int

    Examples
    --------
    >>> step_seconds(0.1, 0.3), step_seconds(0.0, 0.3, 10), step_seconds(0.5, 0.25, 5)
    (0.4, 0.3, 0.55)
    """
    return max(backward + work / buckets, backward / buckets + work)


def break_even_bandwidth(cost: Cost, dense: Cost, world: int, latency: float = 0.0) -> float:
    """Return the bandwidth (bytes/s) below which one cost is less than another.

    The backward pass makes no difference: `step_seconds` grows with the work, whatever it hides.

    Parameters
    ----------
    cost, dense : Cost
        The latter most often ``Cost("sum", nbytes)``.
    world : int
        Ranks.
    latency : float
        Seconds of a message.

    Returns
    -------
    float
        0 if it is never faster, infinity if it always is. Where it sends more bytes but takes less
        time to code, it is faster *above* some bandwidth: that is 0 as well.

    Examples
    --------
    >>> break_even_bandwidth(Cost("sum", 1e6, encode=0.01), Cost("sum", 4e6), world=2)
    300000000.0
    """
    saved = dense.bytes_sent(world) - cost.bytes_sent(world)
    ideal = Link(math.inf, latency)
    longer = cost.work(world, ideal) - dense.work(world, ideal)
    if saved <= 0:
        return 0.0
    return saved / longer if longer > 0 else math.inf
