"""Estimate bytes and time of a training step under each compressor.

Bits, and the time of one processor core, are measured on a sample (`coding_speeds`) and taken to be
in proportion to the parameters. The exchange is predicted by `model`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from tensorcomp.errors import GradientError
from tensorcomp.gradients.autotune.adaptive import Adaptive
from tensorcomp.gradients.base import Compressor
from tensorcomp.gradients.cost_model.coding_speeds import SHAPE, SampleFigures, measure_samples
from tensorcomp.gradients.cost_model.model import (
    TCP_OVERHEAD,
    Cost,
    Link,
    break_even_bandwidth,
    bucket_count,
    step_seconds,
)
from tensorcomp.gradients.text import parse_compressor
from tensorcomp.gradients.wrappers.base import leaf_of

RECIPES = (
    "fp16",
    "int8",
    "int4",
    "topk(0.01, values=affine(8))",
    "topk(0.001, values=affine(8))",
    "dgc(0.001)",
    "sign",
    "randomk(0.01)",
    "powersgd(4)",
)
PAYS = 1.05  # times as fast as dense: less is within what the model is off


class EstimateRow(NamedTuple):
    """Hold a compressor's bytes and times in a step.

    Parameters
    ----------
    text : str
    bits : float
        For each parameter.
    error : float
        Of a payload, see `SampleFigures`.
    bytes_sent : float
        By each rank.
    encode, communicate, decode : float
        Seconds of a rank.
    step : float
        Seconds, the backward pass included.
    speed_up : float
        The step's seconds with dense gradients over these.
    break_even : float
        Bits per second of a line below which it is faster than dense gradients; 0 or infinity.
    """

    text: str
    bits: float
    error: float
    bytes_sent: float
    encode: float
    communicate: float
    decode: float
    step: float
    speed_up: float
    break_even: float

    @property
    def pays(self) -> bool:
        """Return whether a step is faster than dense beyond the model's error."""
        return self.speed_up >= PAYS


class Estimate(NamedTuple):
    """Hold what a step of training would take under each compressor.

    Parameters
    ----------
    parameters : int
    world : int
        Ranks.
    line : float
        Nominal bits per second.
    latency : float
        Seconds of a message.
    backward : float
        Seconds.
    rows : tuple of EstimateRow
        The first one is that of dense gradients.
    """

    parameters: int
    world: int
    line: float
    latency: float
    backward: float
    rows: tuple[EstimateRow, ...]

    @property
    def dense(self) -> EstimateRow:
        """Return the row of dense gradients."""
        return self.rows[0]

    @property
    def fastest(self) -> EstimateRow | None:
        """Return the fastest row that compresses; None if there is none.

        One whose error is larger than the gradient, such as elements drawn at random and scaled up,
        takes so many more steps that it comes last.
        """
        return min(self.rows[1:], key=lambda row: (row.error > 1, row.step), default=None)


def estimate(
    parameters: int,
    world: int,
    line: float,
    *,
    latency: float = 0.0,
    backward: float = 0.0,
    compressors: Iterable[str] = RECIPES,
    shape: tuple[int, int] = SHAPE,
) -> Estimate:
    """Estimate a training step and the break-even bandwidth per compressor.

    Parameters
    ----------
    parameters : int
        Of the model, float32, 1 or more.
    world : int
        Ranks, 2 or more.
    line : float
        Nominal bits per second of each rank's line.
    latency : float
        Seconds of a message.
    backward : float
        Seconds of the backward pass, while which buckets of 25 MiB are exchanged.
    compressors : iterable of str
        Texts of compressors, see `parse_compressor`.
    shape : tuple of int
        Of the sample.

    Returns
    -------
    Estimate

    Raises
    ------
    GradientError
        If a number is out of range, or a recipe is not understood.
    """
    if parameters < 1 or world < 2 or not line > 0 or not 0 <= latency < math.inf or backward < 0:
        raise GradientError(
            "an estimate is of 1 parameter and 2 ranks or more, a bandwidth above 0, and a latency "
            f"and a backward pass of 0 s or more; got {parameters}, {world}, {line} bit/s, "
            f"{latency} s and {backward} s"
        )
    parsed = [(text, _parsed(text)) for text in compressors]
    link = Link.of_line(line, latency)
    buckets = bucket_count(4 * parameters)
    dense = Cost("sum", 4 * parameters, collectives=buckets)
    base = step_seconds(backward, dense.work(world, link), buckets)

    def row(found: SampleFigures) -> EstimateRow:
        each = found.cost
        payload, encode = each.payload_bytes * parameters, each.encode * parameters
        decode, collectives = each.decode * parameters, buckets * each.collectives
        cost = Cost(each.reduction, payload, encode, decode, collectives)
        encode, decode = cost.coding(world)
        step = step_seconds(backward, cost.work(world, link), buckets)
        break_even = break_even_bandwidth(cost, dense, world, latency) * 8 * TCP_OVERHEAD
        sizes = 8 * each.payload_bytes, found.error, cost.bytes_sent(world)
        times = encode, cost.communication(world, link), decode, step
        return EstimateRow(found.text, *sizes, *times, base / step, break_even)

    plain = SampleFigures("dense", Cost("sum", 4.0), 0.0)
    measured = [plain, *measure_samples(parsed, shape)]
    return Estimate(parameters, world, line, latency, backward, tuple(map(row, measured)))


def _parsed(text: str) -> Compressor:
    """Return the compressor of a text; refuse adaptive ones."""
    compressor = parse_compressor(text)
    leaf = leaf_of(compressor)
    if isinstance(leaf, Adaptive):
        raise GradientError(
            f"{text} picks the fastest of its candidates while training goes on; "
            f"estimate these: {', '.join(leaf.candidates)}"
        )
    return compressor
