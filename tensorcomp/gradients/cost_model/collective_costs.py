"""What a collective costs: bytes and seconds of each reduction.

Every rank gives a payload of S bytes, all by one kind of collective; α is the seconds of a message,
β the bytes per second of a rank's link. A message costs α, and all bytes that a rank sends are
divided by β (Hockney's model).

=========  ====================================================  ===================  ==========
reduction  how                                                   bytes a rank sends   messages
=========  ====================================================  ===================  ==========
sum        ring all-reduce                                       2 (W − 1) / W · S    2 (W − 1)
gather     ring all-gather of all payloads                       (W − 1) · S          W − 1
owners     sizes, parts to owners (all-to-all), means to all     2 (W − 1) / W · S    3 (W − 1)
=========  ====================================================  ===================  ==========

References
----------
Hockney 1994, "The communication challenge for MPI"; Patarasuk & Yuan 2009, "Bandwidth optimal
all-reduce algorithms for clusters of workstations".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Reduction

TCP_OVERHEAD = 1.05  # bytes of Ethernet frames for each byte given to a socket
BUCKET_BYTES = (
    25 * 2**20
)  # of gradients that are reduced at once, DistributedDataParallel's default

_MESSAGES: dict[Reduction, int] = {
    "sum": 2,
    "gather": 1,
    "reduce_scatter": 3,
}  # for each other rank


@dataclass(frozen=True)
class Link:
    """How a rank reaches the others.

    Parameters
    ----------
    bandwidth : float
        Bytes per second that a rank sends, of what is given to a socket; above 0.
    latency : float
        Seconds of a message without bytes.

    Raises
    ------
    ValueError
        If one of them is out of range.
    """

    bandwidth: float
    latency: float = 0.0

    def __post_init__(self) -> None:
        if not self.bandwidth > 0:
            raise ValueError(f"bandwidth is above 0 bytes/s; got {self.bandwidth!r}")
        if not 0 <= self.latency < math.inf:
            raise ValueError(f"latency is 0 s or more; got {self.latency!r}")

    @classmethod
    def of_line(cls, bits: float, latency: float = 0.0) -> Link:
        """Return the link that a line gives to TCP sockets.

        Parameters
        ----------
        bits : float
            Nominal bits per second of the line.
        latency : float
            Seconds of a message.
        """
        return cls(bits / 8 / TCP_OVERHEAD, latency)

    @staticmethod
    def line_of(bandwidth: float) -> float:
        """Return the nominal bits per second of a line that gives sockets so many bytes."""
        return bandwidth * 8 * TCP_OVERHEAD


def bytes_sent(reduction: Reduction, payload_bytes: float, world: int) -> float:
    """Return the bytes that each rank sends.

    Parameters
    ----------
    reduction : str
    payload_bytes : float
        Of each rank's payload. The mean of a reduce-scatter is taken to be as large.
    world : int
        Ranks, 1 or more.

    Returns
    -------
    float
        As in the table above, without what TCP and Ethernet add (`TCP_OVERHEAD`).

    Raises
    ------
    GradientError
        If there is no such reduction, or no rank.

    Examples
    --------
    >>> [bytes_sent(reduction, 1000, 4) for reduction in ("sum", "gather", "reduce_scatter")]
    [1500.0, 3000.0, 1500.0]
    """
    _check(reduction, world)
    if reduction == "gather":
        return float((world - 1) * payload_bytes)
    return 2 * (world - 1) / world * payload_bytes


def messages_sent(reduction: Reduction, world: int) -> int:
    """Return how many messages follow on each other in one collective.

    Raises
    ------
    GradientError
        If there is no such reduction, or no rank.
    """
    _check(reduction, world)
    return _MESSAGES[reduction] * (world - 1)


def seconds(
    reduction: Reduction, payload_bytes: float, world: int, link: Link, *, collectives: int = 1
) -> float:
    """Return the seconds of an exchange.

    Parameters
    ----------
    reduction : str
    payload_bytes : float
        Of each rank's payload, in all collectives together.
    world : int
        Ranks, 1 or more.
    link : Link
    collectives : int
        Into how many of equal size it is divided.

    Raises
    ------
    GradientError
        If there is no such reduction, or no rank.
    """
    sent = bytes_sent(reduction, payload_bytes, world)
    return collectives * messages_sent(reduction, world) * link.latency + sent / link.bandwidth


def coding_seconds(
    reduction: Reduction, encode: float, decode: float, world: int
) -> tuple[float, float]:
    """Return the seconds that a rank encodes, and that it decodes.

    With ``"gather"`` it decodes all ranks' payloads; as an owner it decodes all ranks' parts that
    are its own, encodes their mean, and decodes the means of all parts; of sums it decodes one.

    Parameters
    ----------
    reduction : str
    encode, decode : float
        Of a rank's own payload.
    world : int
        Ranks, 1 or more.

    Raises
    ------
    GradientError
        If there is no such reduction, or no rank.
    """
    _check(reduction, world)
    if reduction == "gather":
        return encode, decode * world
    if reduction == "reduce_scatter":
        return encode * (1 + 1 / world), decode * 2
    return encode, decode


def _check(reduction: str, world: int) -> None:
    if reduction not in _MESSAGES:
        raise GradientError(
            f"no reduction is called {reduction!r}; known are {', '.join(_MESSAGES)}"
        )
    if world < 1:
        raise GradientError(f"there are {world} ranks; at least 1 is needed")
