"""Bits and speed of compressors, measured on random gradients.

The sample is of Student's t distribution with 3 degrees of freedom, whose few large elements are
like those of real gradients: the largest hundredth has a third of their squared norm.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from tensorcomp.gradients.base import Compressor, GradientSpec, Reduction, State, StepInfo

SHAPE = (1024, 1024)
_STEPS = 6  # the first compiles or loads kernels
_LATE = 10**9  # a step at which all that warms up is over
_FREEDOM = 3


@dataclass(frozen=True)
class SampleFigures:
    """What a compressor does to the sample.

    Parameters
    ----------
    text : str
        As it was asked for.
    reduction : str
    bits : float
        Of a rank's payload, or of the arrays that it gives to a sum, for each element.
    encode, decode : float
        Seconds an element.
    phases : int
        Collectives one after another.
    error : float
        ‖a − â‖₂ / ‖a‖₂ of what a payload decodes to, for a gradient without residual.
    """

    text: str
    reduction: Reduction
    bits: float
    encode: float
    decode: float
    phases: int
    error: float


def measure_samples(
    compressors: Iterable[tuple[str, Compressor]], shape: tuple[int, int] = SHAPE
) -> Iterator[SampleFigures]:
    """Yield what each compressor does to the sample.

    Parameters
    ----------
    compressors : iterable of (str, Compressor)
        With their texts.
    shape : tuple of int
        Of the sample: matrices, so that it has rows and columns.
    """
    random = np.random.default_rng(0)
    gradients = [random.standard_t(_FREEDOM, shape).astype(np.float32) for _ in range(2)]
    spec = GradientSpec("sample.weight", shape, role="matrix")
    for text, compressor in compressors:
        yield _measured(text, compressor.at(StepInfo(_LATE, "final"), spec), spec, gradients)


def _measured(
    text: str, compressor: Compressor, spec: GradientSpec, gradients: list[np.ndarray]
) -> SampleFigures:
    state = compressor.init(spec)
    encode = decode = float("inf")
    nbytes, error = 0, 0.0
    for number in range(_STEPS):
        gradient = gradients[number % len(gradients)]
        step = _step_of_sum if compressor.reduction == "sum" else _step_of_payload
        found = step(compressor, gradient, state)
        state = found.state
        if number == 0:
            lost = np.linalg.norm((gradient.reshape(-1) - found.decoded).astype(np.float64))
            error = float(lost / np.linalg.norm(gradient.astype(np.float64)))
            continue
        nbytes += found.nbytes
        encode, decode = min(encode, found.encode), min(decode, found.decode)
    bits = 8 * nbytes / (_STEPS - 1) / spec.size
    reduction = compressor.reduction
    seconds = encode / spec.size, decode / spec.size
    return SampleFigures(text, reduction, bits, *seconds, found.phases, error)


@dataclass(frozen=True)
class _Step:
    state: State
    decoded: np.ndarray
    nbytes: int
    encode: float
    decode: float
    phases: int = 1


def _step_of_payload(compressor: Compressor, gradient: np.ndarray, state: State) -> _Step:
    begun = time.perf_counter()
    payload, state = compressor.step(gradient, state)
    encoded = time.perf_counter()
    decoded = np.zeros(gradient.size, gradient.dtype)
    between = time.perf_counter()
    compressor.receive(payload).add_to(decoded, 1.0)
    ended = time.perf_counter()
    return _Step(state, decoded, len(payload.data), encoded - begun, ended - between)


def _step_of_sum(compressor: Compressor, gradient: np.ndarray, state: State) -> _Step:
    nbytes = phases = 0
    begun = time.perf_counter()
    summed = compressor.phases(gradient, state)
    try:
        array = next(summed)
        while True:
            nbytes, phases = nbytes + array.nbytes, phases + 1
            array = summed.send(array)
    except StopIteration as done:
        mean, _, state = done.value
    seconds = time.perf_counter() - begun
    return _Step(state, mean.reshape(-1), nbytes, seconds, 0.0, phases)
