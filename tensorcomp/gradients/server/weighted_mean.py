"""The weighted mean of what messages decode to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tensorcomp.errors import GradientError
from tensorcomp.gradients.payload.decoded import DecodedGradient
from tensorcomp.gradients.server.message_format import Message


@dataclass(frozen=True)
class Arrived:
    """A message that is to be part of a mean.

    Parameters
    ----------
    message : Message
    data : bytes
        It as it came.
    sent : mapping of str to DecodedGradient
        What it decodes to.
    weight : float
        What it counts for.
    """

    message: Message
    data: bytes
    sent: Mapping[str, DecodedGradient]
    weight: float


def weighted_mean(arrived: Sequence[Arrived]) -> dict[str, np.ndarray]:
    """Return the mean of each tensor, Σ wᵢ gᵢ / Σ wᵢ over the messages that have it.

    Sums are in the order of the messages, in the type of the tensor.
    """
    totals: dict[str, float] = {}
    for one in arrived:
        for name in one.sent:
            totals[name] = totals.get(name, 0.0) + one.weight
    means: dict[str, np.ndarray] = {}
    for one in arrived:
        for name, sent in one.sent.items():
            spec = one.message.payloads[name].spec
            if name not in means:
                means[name] = np.zeros(spec.shape, spec.dtype)
            sent.add_to(means[name].reshape(-1), one.weight / totals[name])
    return means


def check_values(sent: DecodedGradient, what: str) -> None:
    """Refuse values that would make a mean, and residuals for ever after, infinite or NaN.

    Parameters
    ----------
    sent : DecodedGradient
    what : str
        For the message.

    Raises
    ------
    GradientError
        If one is not finite, or above a quarter of what its type reaches.
    """
    values = getattr(sent, "values", None)
    if values is None or not values.size:
        return
    largest = float(np.finfo(values.dtype).max) / 4
    if not bool((np.abs(values) <= largest).all()):
        raise GradientError(f"{what} has values that are not finite, or nearly so")
