"""Short texts of compressors for people: what a recipe needs to say, and no defaults."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from typing import Any

from tensorcomp.codecs.text import parse_tree, short_tree
from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Compressor
from tensorcomp.gradients.compressors.error_bounded import ErrorBounded
from tensorcomp.gradients.compressors.powersgd import PowerSgd
from tensorcomp.gradients.compressors.randomk import RandomK
from tensorcomp.gradients.compressors.stochastic import Qsgd
from tensorcomp.gradients.compressors.thresholds import (
    AdaptiveThreshold,
    SampledThreshold,
    Threshold,
)
from tensorcomp.gradients.compressors.tree_compressor import TreeCompressor
from tensorcomp.gradients.wrappers.feedback import ErrorFeedback
from tensorcomp.gradients.wrappers.momentum import MomentumCorrection

_NAMES: dict[type[Compressor], str] = {
    AdaptiveThreshold: "adaptive_threshold",
    ErrorBounded: "error_bounded",
    PowerSgd: "powersgd",
    Qsgd: "qsgd",
    RandomK: "randomk",
    SampledThreshold: "sampled_threshold",
    Threshold: "threshold",
}
_TREES = {
    'cast("BF16", values=raw)': "bf16",
    'cast("F16", values=raw)': "fp16",
    "affine(2)": "int2",
    "affine(4)": "int4",
    "affine(8)": "int8",
}
_TREE_FIELDS = ("values", "mask", "tree")
_TOP_K = "topk("


def label(compressor: Compressor) -> str:
    """Return a short text of a compressor; `parse_compressor` reads it as the same one.

    Error feedback is not told, and of momentum correction no more than its name, ``dgc``.

    Parameters
    ----------
    compressor : Compressor

    Examples
    --------
    >>> from tensorcomp.gradients import parse_compressor
    >>> label(parse_compressor("topk(0.01, values=affine(8), indices=gaps)"))
    'topk(0.01, values=affine(8))'
    """
    if isinstance(compressor, ErrorFeedback):
        return label(compressor.inner)
    if isinstance(compressor, MomentumCorrection):
        inner = label(compressor.inner)
        return f"dgc({inner.removeprefix(_TOP_K)}" if inner.startswith(_TOP_K) else inner
    if isinstance(compressor, TreeCompressor):
        text = short_tree(compressor.tree)
        return _TREES.get(text, text)
    name = _NAMES.get(type(compressor))
    if name is not None:
        return f"{name}({', '.join(_arguments(compressor))})"
    text = compressor.text()
    wrapped: Compressor | None = getattr(compressor, "inner", None)
    return text if wrapped is None else text.replace(wrapped.text(), label(wrapped), 1)


def short(text: str) -> str:
    """Return the `label` of the compressor that a canonical text describes."""
    from tensorcomp.gradients.recipes import parse_compressor

    try:
        return label(parse_compressor(text, feedback=False))
    except GradientError:
        return text


def _arguments(compressor: Any) -> list[str]:
    """Return the fields that differ from their defaults, and the first number in any case."""
    found: list[str] = []
    for place, field in enumerate(fields(compressor)):
        value = getattr(compressor, field.name)
        default = field.default is not MISSING and value == field.default
        if value is None or (default and (place or isinstance(compressor, ErrorBounded))):
            continue
        tree = field.name in _TREE_FIELDS
        text = short_tree(parse_tree(value)) if tree else json.dumps(value)
        positional = place == 0 and not isinstance(compressor, ErrorBounded)
        found.append(text if positional else f"{field.name}={text}")
    return found
