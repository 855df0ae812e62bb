"""Simulate packet loss: drop chunks of payloads, for studies of bounded loss.

Gloo, NCCL and TCP deliver every byte. To study what training tolerates, seeded chunks are dropped
above the transport: the rank that reduces a shard decides what arrived, so all ranks get the same
mean. Times do not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from tensorcomp.errors import GradientError
from tensorcomp.gradients.payload.decoded import (
    DecodedGradient,
    DenseGradient,
    EmptyGradient,
    SparseGradient,
)

_TOLERANCE = {"beginning": 0.1, "middle": 0.05, "final": 0.01}


@dataclass(frozen=True)
class PacketLoss:
    """Drop chunks of workers' gradients at random, up to a tolerance.

    Every chunk is lost with probability `loss`, by a random number of its own that depends on
    nothing but (seed, step, sender, tensor, chunk). What exceeds the tolerance of the phase of
    training is taken as sent again: of a sender's c chunks of a tensor at most ⌊tolerance · c⌋ stay
    lost. The mean of a chunk is over the senders whose chunk arrived; where none did it is zero.

    Parameters
    ----------
    loss : float
        Probability in [0, 1].
    tolerance : float or mapping of str to float
        The share of chunks in [0, 1] that may stay lost, one for all, or one for each phase
        (``"beginning"``, ``"middle"``, ``"final"``).
    chunk : int
        Consecutive elements that are lost together; 256 float32 values fill a packet of 1 KiB.
    seed : int
    acknowledged : bool
        Whether senders learn what was lost; they then take it back into the residual of their error
        feedback. Where a compressor has none, what is lost is lost.

    Raises
    ------
    GradientError
        If a share is not in [0, 1], a chunk is empty, or a mapping lacks a phase.

    References
    ----------
    Wang et al., "Towards Domain-Specific Network Transport for Distributed DNN Training" (MLT),
    NSDI 2024: what training bears, and that it bears less towards its end.
    """

    loss: float = 0.01
    tolerance: float | Mapping[str, float] = field(default_factory=lambda: dict(_TOLERANCE))
    chunk: int = 256
    seed: int = 0
    acknowledged: bool = True

    def __post_init__(self) -> None:
        shares: dict[str, Any] = {"loss": self.loss, "tolerance": self.tolerance}
        if isinstance(self.tolerance, Mapping):
            missing = sorted(set(_TOLERANCE) - set(self.tolerance))
            if missing:
                raise GradientError(
                    f"expected a tolerance for each of {', '.join(_TOLERANCE)}, got none for "
                    f"{missing[0]!r}; give one number for all, or one for each"
                )
            del shares["tolerance"]
            shares |= {f"tolerance[{phase!r}]": one for phase, one in self.tolerance.items()}
        for name, share in shares.items():
            if not 0 <= share <= 1:
                raise GradientError(f"expected {name} to be a share in [0, 1], got {share!r}")
        if self.chunk < 1:
            raise GradientError(f"expected chunk to be 1 or more, got {self.chunk!r}")

    def lost(
        self, size: int, *, name: str, step: int, sender: int, phase: str = "beginning"
    ) -> np.ndarray:
        """Return which chunks of a sender's tensor stay lost at a step.

        Parameters
        ----------
        size : int
            Elements of the tensor.
        name : str
            Of the tensor, or of the part of one.
        step, sender : int
        phase : str

        Returns
        -------
        numpy.ndarray
            (⌈size / chunk⌉,) bool

        Raises
        ------
        GradientError
            If there is no tolerance for the phase.
        """
        import xxhash

        tolerance = self.tolerance
        if isinstance(tolerance, Mapping):
            if phase not in tolerance:
                raise GradientError(f"expected a phase among {', '.join(tolerance)}, got {phase!r}")
            tolerance = tolerance[phase]
        lost = np.zeros(-(-size // self.chunk), bool)
        allowed = int(tolerance * lost.size)
        if not allowed or not self.loss:
            return lost
        label = f"{self.seed}/{step}/{sender}/{name}".encode()
        raw = np.random.Philox(key=xxhash.xxh3_128_intdigest(label)).random_raw(lost.size)
        drawn = (raw >> np.uint64(11)) * 2.0**-53
        first = np.argsort(drawn, kind="stable")[:allowed]
        lost[first] = drawn[first] < self.loss
        return lost

    def mean(
        self,
        sent: Sequence[DecodedGradient],
        size: int,
        *,
        name: str,
        step: int,
        phase: str = "beginning",
        owner: int | None = None,
        dtype: Any = np.float32,
    ) -> tuple[np.ndarray, list[DecodedGradient]]:
        """Return the mean of what arrives, and what did not.

        Parameters
        ----------
        sent : sequence of DecodedGradient
            One for each sender, in the order of their numbers.
        size : int
            Elements of the tensor.
        name : str
        step : int
        phase : str
        owner : int, optional
            The sender that reduces: what it has itself is never lost.
        dtype : dtype
            Of the mean.

        Returns
        -------
        numpy.ndarray
            (size,)
        list of DecodedGradient
            What each sender has to take back.
        """
        total = np.zeros(size, dtype)
        arrived = np.zeros(-(-size // self.chunk), np.int64)
        dropped: list[DecodedGradient] = []
        for sender, one in enumerate(sent):
            lost = np.zeros(arrived.size, bool)
            if sender != owner:
                lost = self.lost(size, name=name, step=step, sender=sender, phase=phase)
            kept, gone = divide(one, lost, self.chunk)
            kept.add_to(total, 1.0)
            arrived += ~lost
            dropped.append(gone)
        total /= np.repeat(np.maximum(arrived, 1), self.chunk)[:size].astype(dtype)
        return total, dropped


def divide(
    sent: DecodedGradient, lost: np.ndarray, chunk: int
) -> tuple[DecodedGradient, DecodedGradient]:
    """Divide a decoded gradient into what arrived and what was lost.

    Parameters
    ----------
    sent : DecodedGradient
    lost : numpy.ndarray
        (c,) bool, one for each chunk.
    chunk : int
        Elements of a chunk.

    Returns
    -------
    tuple of DecodedGradient
        Arrived, lost; their sum is `sent`.
    """
    if isinstance(sent, EmptyGradient) or not lost.any():
        return sent, EmptyGradient()
    if isinstance(sent, SparseGradient):
        gone = lost[sent.positions // chunk]
        return (
            SparseGradient(sent.positions[~gone], sent.values[~gone]),
            SparseGradient(sent.positions[gone], sent.values[gone]),
        )
    values = cast("Any", sent).values
    gone = np.repeat(lost, chunk)[: values.size]
    zero = values.dtype.type(0)
    return DenseGradient(np.where(gone, zero, values)), DenseGradient(np.where(gone, values, zero))
