"""Hold bytes, times, densities and errors of each tensor and step."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import GradientSpec, State
from tensorcomp.gradients.payload.decoded import DecodedGradient
from tensorcomp.metrics.distortion import ErrorSums, measure


class _PerElement:
    """Relate sums to the number of elements; a mixin."""

    elements: int
    sent: int
    payload_bytes: int

    @property
    def density(self) -> float | None:
        """Return the fraction of elements sent; None without elements."""
        return self.sent / self.elements if self.elements else None

    @property
    def bits(self) -> float | None:
        """Return payload bits per element; None without elements."""
        return 8 * self.payload_bytes / self.elements if self.elements else None


@dataclass(frozen=True)
class TensorMetrics(_PerElement):
    """Hold the metrics of one worker's gradient of a tensor at a step.

    What takes a pass over the gradient is None where a step was not observed.

    Parameters
    ----------
    name : str
        Of the parameter.
    elements : int
    compressor : str
        Its text, without defaults and without error feedback (`text.label`).
    raw_bytes, payload_bytes : int
        Of the gradient, and of what is sent for it.
    sent : int
        Elements that were not left out.
    encode_seconds, decode_seconds : float, optional
        Decoding is that of all workers' payloads.
    error : ErrorSums, optional
        The gradient, without residual, against what this worker's payload decodes to.
    residual_norm : float, optional
        ‖residual‖₂ after the step; None without error feedback.
    achieved : float, optional
        The error that an error-bounded compressor measured, in the terms of its bound.
    nonfinite : int, optional
        Elements of the gradient that are NaN or infinite.
    """

    name: str
    elements: int
    compressor: str
    raw_bytes: int
    payload_bytes: int
    sent: int
    encode_seconds: float = 0.0
    decode_seconds: float = 0.0
    error: ErrorSums | None = None
    residual_norm: float | None = None
    achieved: float | None = None
    nonfinite: int = 0

    @property
    def cosine(self) -> float | None:
        """Return the cosine between gradient and decoded; None if either is zero."""
        return None if self.error is None else self.error.cosine

    @property
    def residual_ratio(self) -> float | None:
        """Return ‖residual‖ / ‖gradient‖; None without residual or gradient."""
        if self.residual_norm is None or self.error is None or not self.error.norm:
            return None
        return self.residual_norm / self.error.norm


def tensor_metrics(
    spec: GradientSpec,
    compressor: str,
    payload_bytes: int,
    sent: DecodedGradient,
    *,
    gradient: np.ndarray | None = None,
    state: State | None = None,
    **seconds: float,
) -> TensorMetrics:
    """Return the metrics of a tensor's step.

    Parameters
    ----------
    spec : GradientSpec
    compressor : str
        Its text, without defaults and without error feedback (`text.label`).
    payload_bytes : int
    sent : DecodedGradient
        What this worker's payload decodes to.
    gradient : numpy.ndarray, optional
        Before the residual is added, of any shape; with it, error and non-finite values are
        measured: one pass, and memory for another gradient.
    state : State, optional
        After the step; with it, the norm of the residual and the achieved error are found.
    **seconds : float
        ``encode_seconds`` and ``decode_seconds``.
    """
    error, nonfinite = None, 0
    if gradient is not None:
        error = measure(gradient, sent.array(spec))
        nonfinite = error.equal_nonfinite + error.unequal_nonfinite
    residual = _remembered(state, "residual")
    achieved = _remembered(state, "achieved")
    return TensorMetrics(
        spec.name,
        spec.size,
        compressor,
        spec.nbytes,
        payload_bytes,
        sent.count,
        error=error,
        residual_norm=None if residual is None else measure(residual, residual).norm,
        achieved=None if achieved is None else float(achieved),
        nonfinite=nonfinite,
        **seconds,
    )


def _remembered(state: State | None, field: str) -> Any:
    """Return a field of a state or of the states within it; None if absent."""
    found = None
    while state is not None and found is None:
        found = getattr(state, field, None)
        state = getattr(state, "inner", None)
    return found


def _total(figure: str, doc: str) -> Any:
    """Return a property that sums a figure over all tensors of a step."""
    return property(lambda step: sum(getattr(one, figure) for one in step.tensors), doc=doc)


@dataclass(frozen=True)
class StepMetrics(_PerElement):
    """Hold the metrics of all gradients of one worker at a step.

    Parameters
    ----------
    step : int
        Optimizer steps before this one.
    tensors : tuple of TensorMetrics
    framed_bytes : int, optional
        Of the frames that this worker made: payloads, headers, padding.
    wire_bytes : int, optional
        That this worker sent, by the formulas of the collectives (`cost_model`).
    encode_seconds, communicate_seconds, decode_seconds : float, optional
    skipped : bool, optional
        Whether a worker had a value that was not finite: residuals then stay as they were.
    """

    step: int
    tensors: tuple[TensorMetrics, ...]
    framed_bytes: int = 0
    wire_bytes: int = 0
    encode_seconds: float = 0.0
    communicate_seconds: float = 0.0
    decode_seconds: float = 0.0
    skipped: bool = False

    elements = _total("elements", "Elements of all gradients.")
    raw_bytes = _total("raw_bytes", "Bytes of all gradients uncompressed.")
    payload_bytes = _total("payload_bytes", "Bytes of all payloads.")
    sent = _total("sent", "Elements that were not left out.")
    nonfinite = _total("nonfinite", "Elements that are NaN or infinite.")

    @property
    def cosine(self) -> float | None:
        """Return the cosine between all gradients and all decoded, as one vector."""
        errors = [tensor.error for tensor in self.tensors if tensor.error is not None]
        return sum(errors, ErrorSums()).cosine

    @property
    def residual_ratio(self) -> float | None:
        """Return ‖residual‖ / ‖gradient‖ over all tensors with a residual."""
        pairs = [
            (tensor.residual_norm, tensor.error.norm)
            for tensor in self.tensors
            if tensor.residual_norm is not None and tensor.error is not None
        ]
        gradient = math.hypot(*(norm for _, norm in pairs))
        return math.hypot(*(norm for norm, _ in pairs)) / gradient if gradient else None

    def scalars(self) -> dict[str, float]:
        """Return every figure that is known, by a name such as ``"bytes/payload"``."""
        figures: dict[str, float | None] = {
            "bytes/raw": self.raw_bytes,
            "bytes/payload": self.payload_bytes,
            "bytes/framed": self.framed_bytes,
            "bytes/wire": self.wire_bytes,
            "ms/encode": 1e3 * self.encode_seconds,
            "ms/communicate": 1e3 * self.communicate_seconds,
            "ms/decode": 1e3 * self.decode_seconds,
            "density": self.density,
            "residual_ratio": self.residual_ratio,
            "cosine": self.cosine,
            "nonfinite": self.nonfinite,
            "skipped": self.skipped,
        }
        return {name: float(value) for name, value in figures.items() if value is not None}


class History:
    """Keep the metrics of the last steps, and sums over all.

    Parameters
    ----------
    keep : int, optional
        Steps that are kept.

    Attributes
    ----------
    count, skipped : int
        Steps so far, and those in which a value was not finite.
    raw_bytes, payload_bytes, framed_bytes, wire_bytes : int
        Sums over all steps.
    """

    def __init__(self, keep: int = 100) -> None:
        if keep < 1:
            raise GradientError(f"at least 1 step must be kept; got {keep}")
        self._steps: deque[StepMetrics] = deque(maxlen=keep)
        self.count = self.skipped = 0
        self.raw_bytes = self.payload_bytes = self.framed_bytes = self.wire_bytes = 0

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[StepMetrics]:
        return iter(self._steps)

    @property
    def last(self) -> StepMetrics | None:
        """Return the metrics of the last step, if there was one."""
        return self._steps[-1] if self._steps else None

    def add(self, step: StepMetrics) -> None:
        """Take in the metrics of a step."""
        self._steps.append(step)
        self.count += 1
        for figure in ("skipped", "raw_bytes", "payload_bytes", "framed_bytes", "wire_bytes"):
            setattr(self, figure, getattr(self, figure) + getattr(step, figure))

    def summary(self, width: int | None = None) -> str:
        """Return totals and a table of all tensors, averaged over the kept steps.

        Bits are payload bits per element; errors are ‖g − ĝ‖₂ / ‖g‖₂ of payloads, residuals
        ‖residual‖₂ / ‖g‖₂; achieved is the error that an error-bounded compressor measured. Columns
        without values are left out: cosine, error, residual and achieved need ``observe``.

        Parameters
        ----------
        width : int, optional
            Columns to keep within: names are folded. By default a tensor is one line.
        """
        from tensorcomp.gradients.monitoring.tables import gradient_table, gradient_totals

        lines = [*gradient_totals(self), "", *gradient_table(self).lines(width)]
        return "\n".join(lines).rstrip("\n")
