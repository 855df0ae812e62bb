"""Templates of trees with a free step, and trees with their steps scaled.

A template is a tree's text in which ``$step`` stands for a quantizer's step, found by the planner,
and ``$quantizer`` for the quantizer that suits the effort. A codec's field ``step`` is its step.
"""

from __future__ import annotations

import functools
import math
import re
from dataclasses import replace

from tensorcomp.codecs.text import parse_tree
from tensorcomp.codecs.tree import Node
from tensorcomp.errors import PlanError
from tensorcomp.planning.budgets import Bound

STEP, QUANTIZER = "$step", "$quantizer"
_HOLE = 1.0390625  # where a step is to stand in a tree that is parsed once
_MIN_STEP, _MAX_STEP = 1e-300, 1e300  # beyond, a multiple of one may overflow float64
_STEP = re.compile(rf"{re.escape(STEP)}\b")
QUANTIZERS = {
    "fast": "uniform($step, codes=huffman)",
    "balanced": "trellis($step)",
    "max": "trellis($step, 32, codes=ans(contexts=16, states=12, trellis=32, bypass=true))",
}
# Where each element's error is bounded: a trellis may miss one by a step, `uniform` by half of it.
ELEMENTWISE_QUANTIZERS = QUANTIZERS | {"balanced": "uniform($step)", "max": "uniform($step)"}


def expand_quantizer(template: str, effort: str, bound: Bound | None = None) -> str:
    """Return the template with the quantizer of an effort and bound filled in."""
    elementwise = bound is not None and bound.max_abs_error < math.inf
    quantizers = ELEMENTWISE_QUANTIZERS if elementwise else QUANTIZERS
    return template.replace(QUANTIZER, quantizers[effort])


def is_free(template: str) -> bool:
    """Return whether a template has a step to be found."""
    return STEP in template or QUANTIZER in template


def may_lose(template: str) -> bool:
    """Return whether the tree of a template loses anything."""
    return is_free(template) or not prototype(template).lossless


def check_template(template: str) -> None:
    """Require that a template is the text of a tree, but for its placeholders.

    Raises
    ------
    PlanError
        If it is not.
    """
    if not isinstance(template, str):
        raise PlanError(f"expected the text of a tree, got {template!r}")
    prototype(expand_quantizer(template, "balanced"))


def instantiate(template: str, step: float) -> Node:
    """Return the tree of a template, its quantizer written out, for a step.

    Raises
    ------
    PlanError
        If that is not a tree.
    """
    return _filled(_with_holes(template), rounded(step))


@functools.lru_cache(maxsize=256)
def prototype(template: str) -> Node:
    """Return the tree of a template with a step of 1, to read its codecs' traits."""
    return instantiate(template, 1.0)


@functools.lru_cache(maxsize=256)
def _with_holes(template: str) -> Node:
    """Return the tree of a template with `_HOLE` for every step."""
    text = _STEP.sub(repr(_HOLE), template)
    if "$" in text:
        raise PlanError(f"expected no placeholders but {STEP} and {QUANTIZER}, got {template!r}")
    return parse_tree(text)


def _filled(node: Node, step: float) -> Node:
    """Return the tree with a step in each hole; parts without any are shared."""
    children = tuple((name, _filled(child, step)) for name, child in node.children)
    config, codec = vars(node.codec), node.codec
    if _HOLE in config.values():
        filled = {name: step if value == _HOLE else value for name, value in config.items()}
        codec = type(codec)(**filled)
    elif all(new is old for (_, new), (_, old) in zip(children, node.children, strict=True)):
        return node
    return Node(codec, children)


def rounded(step: float) -> float:
    """Return a step in six significant digits: each tensor stores its text."""
    return float(f"{min(max(step, _MIN_STEP), _MAX_STEP):.6g}")


def scale_steps(node: Node, factor: float) -> Node:
    """Return the tree with every step multiplied."""
    codec = node.codec
    if has_step(codec):
        codec = replace(codec, step=rounded(codec.step * factor))  # type: ignore[attr-defined, type-var]
    return Node(codec, tuple((name, scale_steps(child, factor)) for name, child in node.children))


def has_step(codec: object) -> bool:
    """Return whether a codec has a step of its own."""
    return isinstance(getattr(codec, "step", None), (int, float))


def has_free_step(node: Node) -> bool:
    """Return whether any codec of a tree has a step."""
    return any(has_step(codec) for codec in node.walk())
