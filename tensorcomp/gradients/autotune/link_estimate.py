"""Latency and bandwidth of a link, learnt from the collectives that run on it anyway."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from tensorcomp.errors import GradientError
from tensorcomp.gradients.cost_model.model import Link

_KEPT = 16  # observations of a size class
_TOO_SHORT = 1e-9  # seconds that no clock tells apart
_NO_BETTER = 0.01  # in the mean |log|: one in a hundred


@dataclass(frozen=True)
class Observation:
    """A collective that was timed.

    Parameters
    ----------
    nbytes : float
        Bytes that this rank sent in it (`cost_model.bytes_sent`).
    seconds : float
    messages : float
        How many messages followed on each other (`cost_model.messages_sent`).
    number : int
        How many were timed before it.
    """

    nbytes: float
    seconds: float
    messages: float
    number: int

    @property
    def size_class(self) -> int:
        """The bytes' power of 4."""
        return int(self.nbytes).bit_length() // 2


@dataclass(frozen=True)
class LinkEstimate:
    """A running fit of ``seconds = messages × latency + bytes / bandwidth``.

    The line is the one through two observations, or through one and without latency or without
    limit of bandwidth, from which the others are nearest in the mean of |log(seconds /
    predicted)|: delays of less than half of the collectives do not move it. An observation counts
    half as much after another `half_life` of them, and each size class keeps its last ones: if only
    large collectives follow, they tell the bandwidth, and the latency stays as it was seen with
    small ones.

    Parameters
    ----------
    observations : tuple of Observation
    half_life : float
        In observations.
    count : int
        Observations so far.

    References
    ----------
    Sen 1968, "Estimates of the regression coefficient based on Kendall's tau".

    Examples
    --------
    >>> estimate = LinkEstimate()
    >>> for nbytes in (1e3, 1e6):
    ...     estimate = estimate.observe(nbytes, 1e-3 + nbytes / 1e8)
    >>> link = estimate.link()
    >>> round(link.bandwidth / 1e8, 3), round(link.latency * 1e3, 3)
    (1.0, 1.0)
    """

    observations: tuple[Observation, ...] = ()
    half_life: float = 16.0
    count: int = 0

    def observe(self, nbytes: float, seconds: float, messages: float = 1) -> LinkEstimate:
        """Return the estimate after another collective.

        Parameters
        ----------
        nbytes : float
            Bytes that this rank sent.
        seconds : float
            How long it took.
        messages : float
            How many messages followed on each other; nothing is learnt from none.

        Raises
        ------
        GradientError
            If a figure is negative or not finite.
        """
        figures = (nbytes, seconds, messages)
        if not all(math.isfinite(figure) and figure >= 0 for figure in figures):
            raise GradientError(
                f"a collective of {nbytes} bytes and {messages} messages in {seconds} s tells "
                "nothing of a link; figures are finite and not negative"
            )
        if not messages:
            return self
        new = Observation(nbytes, max(seconds, _TOO_SHORT), messages, self.count)
        kept = [*self.observations, new]
        if Counter(one.size_class for one in kept)[new.size_class] > _KEPT:
            kept.remove(next(one for one in kept if one.size_class == new.size_class))
        return replace(self, observations=tuple(kept), count=self.count + 1)

    def link(self) -> Link | None:
        """Return the link that fits best; None if nothing was observed.

        Where all collectives are of one size, latency is taken to be 0.
        """
        if not self.observations:
            return None
        table = np.array([(o.nbytes, o.seconds, o.messages, o.number) for o in self.observations])
        nbytes, seconds, messages, number = table.T
        weights = 0.5 ** ((self.count - 1 - number) / self.half_life)
        weights /= weights.sum()

        def misfit(latency: np.ndarray, per_byte: np.ndarray) -> np.ndarray:
            predicted = np.outer(latency, messages) + np.outer(per_byte, nbytes)
            logs = np.log(np.maximum(predicted, _TOO_SHORT)) - np.log(seconds)
            return np.abs(logs) @ weights  # type: ignore[no-any-return]

        # Without latency first: another line must fit better than by what rounding can do.
        sent = nbytes > 0
        candidates = [(np.zeros(int(sent.sum())), seconds[sent] / nbytes[sent])]
        candidates.append((seconds / messages, np.zeros(seconds.size)))
        candidates.append(_through_pairs(nbytes, seconds, messages))
        latency, per_byte = (np.concatenate(column) for column in zip(*candidates, strict=True))
        errors = misfit(latency, per_byte)
        best = int(errors.argmin())
        if sent.any():
            plain = int(errors[: int(sent.sum())].argmin())
            if errors[plain] <= errors[best] + _NO_BETTER:
                best = plain
        found = float(per_byte[best])
        return Link(1 / found if found > 0 else math.inf, float(latency[best]))


def _through_pairs(
    nbytes: np.ndarray, seconds: np.ndarray, messages: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return latencies and seconds a byte of all lines through two observations, none negative."""
    first, second = np.triu_indices(nbytes.size, 1)
    determinant = messages[first] * nbytes[second] - messages[second] * nbytes[first]
    apart = determinant != 0
    first, second, determinant = first[apart], second[apart], determinant[apart]
    latency = (seconds[first] * nbytes[second] - seconds[second] * nbytes[first]) / determinant
    per_byte = (messages[first] * seconds[second] - messages[second] * seconds[first]) / determinant
    possible = (latency >= 0) & (per_byte >= 0)
    return latency[possible], per_byte[possible]
