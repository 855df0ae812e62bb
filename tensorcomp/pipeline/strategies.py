"""Encode tensors by strategies, trees that are measured beside each other.

A strategy codes every tensor by one template (see `planning.steps`). A free step is proportional to
a root mean square: ``bits`` are what an entropy coder needs for independent Gaussian weights
rounded to its multiples, log2(√(2πe) × rms / step). That of each tensor gives all tensors about the
same signal-to-noise ratio; that of all tensors together, one step for all, gives the highest ratio
of the whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tensorcomp.codecs.registry import added_codecs, own_codecs
from tensorcomp.codecs.strategy import USUAL_BITS, Strategy, at_rates
from tensorcomp.codecs.tree import Node
from tensorcomp.container.blob import CODED
from tensorcomp.container.chunk_grid import ChunkGrid
from tensorcomp.container.tensor_blob import TensorBlob, decode_tensor, encode_tensor
from tensorcomp.pipeline.encode import planned_encoder
from tensorcomp.planning.calibrated import Calibrated, scaled
from tensorcomp.planning.plan import TensorPlan
from tensorcomp.planning.steps import check_template, expand_quantizer, instantiate, is_free

_ENTROPY = math.sqrt(2 * math.pi * math.e)  # 2 to the differential entropy of a unit Gaussian
LOSSLESS = Strategy("lossless")
_FED_BACK = "trellis($step)"  # under scales where there are statistics of a tensor
WITH_STATISTICS = tuple(
    replace(strategy, feedback=True)
    for strategy in at_rates("trellis with feedback", scaled(_FED_BACK, 1))[:3]
)


def strategies() -> tuple[Strategy, ...]:
    """Return the lossless planner's strategies, and those of all codecs."""
    codecs = (*own_codecs().values(), *added_codecs())
    return (
        LOSSLESS,
        Strategy("lossless, most effort", effort="max"),
        *(strategy for codec in codecs for strategy in codec.strategies),
    )


def strategy_tree(strategy: Strategy, scale: float) -> Node | None:
    """Return a strategy's tree for a root mean square; None if lossless.

    Parameters
    ----------
    strategy : Strategy
    scale : float
        That of the tensor, or of all if the step is common; at least 0.
    """
    if not strategy.template:
        return None
    step = _ENTROPY * (scale or 1.0) * 2.0**-strategy.bits
    return instantiate(expand_quantizer(strategy.template, strategy.effort), max(step, 1e-300))


def own_strategy(template: str) -> Strategy:
    """Return the strategy of a tree or template; a free step is one of 4 bits.

    Raises
    ------
    PlanError
        If it is not a tree.
    """
    check_template(template)
    suffix = f", {USUAL_BITS:g} bits" if is_free(template) else ""
    return Strategy(template + suffix, template)


@dataclass(frozen=True)
class EncodedTensor:
    """Size of an encoded tensor, and how to decode it.

    Parameters
    ----------
    nbytes : int
    decode : callable
        Returns the tensor's array.
    refused : bool
        Whether the strategy could not code it, or not in fewer bytes than it has, so that some or
        all of it was coded losslessly.
    """

    nbytes: int
    decode: Callable[[], np.ndarray]
    refused: bool = False


def code(
    strategy: Strategy,
    array: np.ndarray,
    grid: ChunkGrid,
    scale: float,
    calibrated: Calibrated | None = None,
) -> EncodedTensor:
    """Encode a tensor as a file would hold it: shared data, payloads, index.

    Parameters
    ----------
    strategy : Strategy
    array : numpy.ndarray
        Of the shape and type of `grid`.
    grid : ChunkGrid
    scale : float
        Root mean square that a free step is proportional to.
    calibrated : Calibrated, optional
        Statistics, for strategies with feedback.
    """
    calibrated = calibrated if strategy.feedback else None
    if strategy.feedback:
        template = _FED_BACK if calibrated is None else scaled(_FED_BACK, calibrated.along)
        strategy = replace(strategy, template=template)
    tree = strategy_tree(strategy, scale)
    plan = None if tree is None else TensorPlan(tree, calibrated=calibrated)
    found, _ = planned_encoder(array, grid, plan, strategy.effort)
    encoded = encode_tensor(array, found.coder, grid, found.roots)
    data = np.frombuffer(encoded.to_bytes(), np.uint8)

    def decode() -> np.ndarray:
        return decode_tensor(TensorBlob.open(data, found.coder.trees, grid, ""))

    lossy = tree is not None and not tree.lossless
    by_other = found.lossless or any(payload[0] != CODED for payload in encoded.payloads)
    return EncodedTensor(data.size, decode, lossy and by_other)
