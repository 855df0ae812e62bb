"""What an exchange of gradients costs, and whether compression pays: below which bandwidth.

The formulas of single collectives are in `collective_costs`, and can be imported from here.

References
----------
Agarwal et al. 2022, "On the utility of gradient compression in distributed training systems".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tensorcomp.gradients.base import Reduction
from tensorcomp.gradients.cost_model.collective_costs import (
    TCP_OVERHEAD,
    Link,
    bytes_sent,
    coding_seconds,
    messages_sent,
    seconds,
)

__all__ = [
    "BUCKET_BYTES",
    "TCP_OVERHEAD",
    "WORLDS",
    "Cost",
    "Link",
    "break_even_bandwidth",
    "break_even_density",
    "bucket_count",
    "bytes_sent",
    "coding_seconds",
    "curve",
    "dense_cost",
    "messages_sent",
    "seconds",
    "step_seconds",
]

BUCKET_BYTES = 25 * 2**20  # of gradients reduced at once, DistributedDataParallel's default
WORLDS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class Cost:
    """What a rank has to code and to exchange in a step.

    Parameters
    ----------
    reduction : str
        ``"gather"``, ``"reduce_scatter"`` or ``"sum"``.
    payload_bytes : float
        Bytes of its own payload; of a ``"sum"``, of all arrays that are summed.
    encode, decode : float
        Seconds of its own payload.
    collectives : int
        How many exchanges: one for each bucket, times the phases of a ``"sum"``.
    """

    reduction: Reduction
    payload_bytes: float
    encode: float = 0.0
    decode: float = 0.0
    collectives: int = 1

    def bytes_sent(self, world: int) -> float:
        """Return the bytes that each of `world` ranks sends."""
        return bytes_sent(self.reduction, self.payload_bytes, world)

    def communication(self, world: int, link: Link) -> float:
        """Return the seconds of the exchanges."""
        return seconds(
            self.reduction, self.payload_bytes, world, link, collectives=self.collectives
        )

    def coding(self, world: int) -> float:
        """Return the seconds of all encoding and decoding on a rank."""
        return sum(coding_seconds(self.reduction, self.encode, self.decode, world))

    def work(self, world: int, link: Link) -> float:
        """Return the seconds of coding and exchanges, one after the other."""
        return self.coding(world) + self.communication(world, link)


def dense_cost(nbytes: float, *, collectives: int = 1) -> Cost:
    """Return the cost of gradients that are summed as they are.

    Parameters
    ----------
    nbytes : float
        Of all gradients.
    collectives : int
        Buckets.
    """
    return Cost("sum", nbytes, collectives=collectives)


def step_seconds(backward: float, work: float, buckets: int = 1) -> float:
    """Return the seconds of a backward pass whose gradients are exchanged while it runs.

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
    """Return the bandwidth below which one way of exchanging is faster than another.

    The backward pass makes no difference: `step_seconds` grows with the work, whatever it hides.

    Parameters
    ----------
    cost : Cost
        Of the one.
    dense : Cost
        Of the other, most often `dense_cost`.
    world : int
        Ranks.
    latency : float
        Seconds of a message.

    Returns
    -------
    float
        Bytes per second. 0 if it is never faster, infinity if it always is. Where it sends more
        bytes but takes less time to code, it is faster *above* some bandwidth: that is 0 as well.

    Examples
    --------
    >>> break_even_bandwidth(Cost("sum", 1e6, encode=0.01), dense_cost(4e6), world=2)
    300000000.0
    """
    saved = dense.bytes_sent(world) - cost.bytes_sent(world)
    ideal = Link(math.inf, latency)
    longer = cost.work(world, ideal) - dense.work(world, ideal)
    if saved <= 0:
        return 0.0
    return saved / longer if longer > 0 else math.inf


def break_even_density(world: int, bytes_per_entry: float, bytes_per_element: float = 4.0) -> float:
    """Return the density above which gathering sparse payloads sends more bytes than a dense sum.

    Parameters
    ----------
    world : int
        Ranks, 2 or more.
    bytes_per_entry : float
        Of a kept element: its value and its place.
    bytes_per_element : float
        Of a gradient that is sent as it is.

    Returns
    -------
    float
        2 · bytes_per_element / (W · bytes_per_entry), 1 at most.

    Examples
    --------
    >>> break_even_density(8, 8.0), break_even_density(2, 3.0)
    (0.125, 1.0)
    """
    return min(1.0, 2 * bytes_per_element / (world * bytes_per_entry))


def bucket_count(nbytes: float, bucket_bytes: float = BUCKET_BYTES) -> int:
    """Return into how many buckets gradients are divided, at least 1."""
    return max(1, math.ceil(nbytes / bucket_bytes))


def curve(
    cost: Cost, link: Link, worlds: Iterable[int] = WORLDS
) -> Iterator[tuple[int, float, float]]:
    """Yield how a cost grows with the ranks: a model's figures, not measured ones.

    Parameters
    ----------
    cost : Cost
    link : Link
    worlds : iterable of int
        Numbers of ranks; the powers of 2 up to 1,024 by default.

    Yields
    ------
    tuple of (int, float, float)
        Ranks, bytes that each sends, seconds of coding and exchange.
    """
    for world in worlds:
        yield world, cost.bytes_sent(world), cost.work(world, link)
