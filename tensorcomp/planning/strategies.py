"""Strategies: trees that are often asked for, in one table, to be measured beside each other.

A strategy codes every tensor by one template (see `steps`). A free step is proportional to a root
mean square: ``bits`` are what an entropy coder needs for independent Gaussian weights rounded to
its multiples, log2(√(2πe) × rms / step). That of each tensor gives all tensors about the same
signal-to-noise ratio; that of all tensors together, one step for all, gives the highest ratio of
the whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.util import find_spec

from tensorcomp.codecs.tree import Node
from tensorcomp.planning.steps import check_template, fill, is_free, spelled

_ENTROPY = math.sqrt(2 * math.pi * math.e)  # 2 to the differential entropy of a unit Gaussian
_USUAL_BITS = 4.0


@dataclass(frozen=True)
class Strategy:
    """A label, and what codes each tensor.

    Parameters
    ----------
    label : str
    template : str
        A tree's text; empty for what the lossless planner chooses.
    bits : float
        Of independent Gaussian weights; says ``$step``.
    family : str
        Strategies that differ in rate only share it; by default the label.
    common : bool
        Whether all tensors have one step.
    effort : str
    needs : str
        A module without which it is left out.
    """

    label: str
    template: str = ""
    bits: float = _USUAL_BITS
    family: str = ""
    common: bool = False
    effort: str = "balanced"
    needs: str = ""

    def __post_init__(self) -> None:
        if not self.family:
            object.__setattr__(self, "family", self.label)

    def tree(self, scale: float) -> Node | None:
        """Return the tree for a root mean square; None for what the lossless planner chooses.

        Parameters
        ----------
        scale : float
            That of the tensor, or of all if the step is common; at least 0.
        """
        if not self.template:
            return None
        step = _ENTROPY * (scale or 1.0) * 2.0**-self.bits
        return fill(spelled(self.template, self.effort), max(step, 1e-300))

    def available(self) -> bool:
        """Return whether what it needs is installed."""
        return not self.needs or find_spec(self.needs) is not None


def _family(name: str, template: str, *, common: bool = False) -> tuple[Strategy, ...]:
    return tuple(
        Strategy(f"{name}, {bits} bits", template, bits, name, common)
        for bits in (2, 3, 4, 5, 6, 8)
    )


# fmt: off
STRATEGIES: tuple[Strategy, ...] = (
    Strategy("lossless"),
    Strategy("lossless, most effort", effort="max"),
    Strategy("Huffman alone", "floats(contexts=1)"),
    Strategy("zstd alone", "raw(bytes=zstd)"),
    *_family("uniform", "uniform($step)"),
    *_family("uniform, one step", "uniform($step)", common=True),
    *_family("trellis", "trellis($step)"),
    *(Strategy(f"k-means, {k} numbers", f"kmeans({k})", family="k-means")
      for k in (4, 8, 16, 64, 256)),
    *(Strategy(f"{bits} bits in groups of 128", f"affine({bits}, 128)", family="groups of 128")
      for bits in (2, 3, 4, 6, 8)),
    Strategy("int8 rows", "affine(8, -1)"),
    Strategy("NF4", "nf4"),
    Strategy("fp16", 'cast("F16")'),
    Strategy("bf16", 'cast("BF16")'),
    Strategy("fp8 e4m3", 'cast("F8_E4M3")'),
    Strategy("fp8 e5m2", 'cast("F8_E5M2")'),
    Strategy("ternary", "ternary"),
    Strategy("sign", "sign"),
    Strategy("vectors of 4, 256 means", "pq(256, 4)", needs="sklearn"),
    Strategy("50 % zeros", "magnitude(0.5, values=uniform($step))", 6),
    Strategy("90 % zeros", "magnitude(0.9, values=uniform($step))", 6),
    Strategy("2 of 4 zeros", "nm(2, 4, values=uniform($step))", 6),
    Strategy("10 % of channels off", "channel(0.1, values=uniform($step))", 6),
    Strategy("Deep Compression", "magnitude(0.9, mask=gaps, values=kmeans(16, codes=huffman))"),
    Strategy("SVD, half rank, int8", "svd(0.5, left=affine(8, -1), right=affine(8, -1))"),
)
# fmt: on


def own_strategy(template: str) -> Strategy:
    """Return the strategy of a tree or template that a user names; a free step is one of 4 bits.

    Raises
    ------
    PlanError
        If it is no tree.
    """
    check_template(template)
    suffix = f", {_USUAL_BITS:g} bits" if is_free(template) else ""
    return Strategy(template + suffix, template)
