"""Strategies: trees that codecs are often asked for as, to be measured beside each other.

A strategy codes every tensor by one template (see `steps`). A free step is proportional to a root
mean square: ``bits`` are what an entropy coder needs for independent Gaussian weights rounded to
its multiples, log2(√(2πe) × rms / step). That of each tensor gives all tensors about the same
signal-to-noise ratio; that of all tensors together, one step for all, gives the highest ratio of
the whole.
"""

from __future__ import annotations

import math

from tensorcomp.codecs.registry import added_codecs, own_codecs
from tensorcomp.codecs.strategy import USUAL_BITS, Strategy
from tensorcomp.codecs.tree import Node
from tensorcomp.planning.steps import check_template, expand_quantizer, instantiate, is_free

_ENTROPY = math.sqrt(2 * math.pi * math.e)  # 2 to the differential entropy of a unit Gaussian


def strategies() -> tuple[Strategy, ...]:
    """Return the lossless planner's strategies, and those of all codecs."""
    codecs = (*own_codecs().values(), *added_codecs())
    return (
        Strategy("lossless"),
        Strategy("lossless, most effort", effort="max"),
        *(strategy for codec in codecs for strategy in codec.strategies),
    )


def strategy_tree(strategy: Strategy, scale: float) -> Node | None:
    """Return a strategy's tree for a root mean square; None for what the lossless planner chooses.

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
    """Return the strategy of a tree or template that a user names; a free step is one of 4 bits.

    Raises
    ------
    PlanError
        If it is no tree.
    """
    check_template(template)
    suffix = f", {USUAL_BITS:g} bits" if is_free(template) else ""
    return Strategy(template + suffix, template)
