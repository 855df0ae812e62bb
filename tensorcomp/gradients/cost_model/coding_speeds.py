"""Measure bits, error and speed of compressors on random gradients.

The sample is of Student's t distribution with 3 degrees of freedom, whose few large elements are
like those of real gradients: the largest hundredth has a third of their squared norm.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tensorcomp.gradients.base import Compressor, GradientSpec, State, StepInfo
from tensorcomp.gradients.cost_model.model import Cost
from tensorcomp.metrics.distortion import measure

SHAPE = (1024, 1024)
_STEPS = 6  # the first loads kernels
_LATE = 10**9  # a step at which all that warms up is over
_FREEDOM = 3


class SampleFigures(NamedTuple):
    """Hold what a compressor does to the sample.

    Parameters
    ----------
    text : str
        As it was asked for.
    cost : Cost
        Bytes and seconds per element; as many collectives as follow one another.
    error : float
        ‖a − â‖₂ / ‖a‖₂ of what a payload decodes to, for a gradient without residual.
    """

    text: str
    cost: Cost
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
    for text, asked in compressors:
        compressor = asked.at(StepInfo(_LATE, "final"), spec)
        first, error, state = code_once(compressor, gradients[0], compressor.init(spec))
        costs = []
        for number in range(1, _STEPS):
            cost, _, state = code_once(compressor, gradients[number % 2], state)
            costs.append(cost)
        per_element = replace(
            first,
            payload_bytes=sum(cost.payload_bytes for cost in costs) / len(costs) / spec.size,
            encode=min(cost.encode for cost in costs) / spec.size,
            decode=min(cost.decode for cost in costs) / spec.size,
        )
        yield SampleFigures(text, per_element, error)


def code_once(
    compressor: Compressor, gradient: np.ndarray, state: State
) -> tuple[Cost, float, State]:
    """Compress and decode a gradient once; return cost, error and next state.

    Parameters
    ----------
    compressor : Compressor
        Concrete, see `Compressor.at`.
    gradient : numpy.ndarray
    state : State
        Before the step.
    """
    decoded = np.zeros(gradient.size, gradient.dtype)
    begun = time.perf_counter()
    if compressor.reduction == "sum":
        nbytes = phases = 0
        summed = compressor.phases(gradient, state)
        try:
            array = next(summed)
            while True:
                nbytes, phases = nbytes + array.nbytes, phases + 1
                array = summed.send(array)
        except StopIteration as done:
            encoded = ended = time.perf_counter()
            mean, _, after = done.value
            decoded = mean.reshape(-1)
    else:
        payload, after = compressor.step(gradient, state)
        encoded = time.perf_counter()
        compressor.receive(payload).add_to(decoded, 1.0)
        ended = time.perf_counter()
        nbytes, phases = len(payload.data), 1
    error = float(measure(gradient, decoded).rel_l2)
    cost = Cost(compressor.reduction, nbytes, encoded - begun, ended - encoded, phases)
    return cost, error, after
