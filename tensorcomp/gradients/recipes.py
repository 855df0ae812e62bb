"""Compressors by their text: trees of codecs, and what is more than a tree, by name.

One line in `RECIPES` adds a name. A builder is given the call, taken apart, and whether there is to
be error feedback; it returns the compressor with whatever is wrapped around it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, TypeAlias, cast

from tensorcomp.codecs.floats.cast import Cast
from tensorcomp.codecs.quantize.affine import Affine
from tensorcomp.codecs.quantize.nf4 import Nf4
from tensorcomp.codecs.text import parse_tree
from tensorcomp.codecs.tree import Node
from tensorcomp.errors import GradientError, PlanError, UnknownCodecError
from tensorcomp.gradients.base import Compressor
from tensorcomp.gradients.compressors.dense import Dense
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
from tensorcomp.gradients.recipe_text import Call, made, text_of, value_of
from tensorcomp.gradients.wrappers.feedback import ErrorFeedback

Feedback: TypeAlias = 'bool | Literal["auto"]'
Builder: TypeAlias = "Callable[[Call, Feedback], Compressor]"

SMALL_ERROR = 0.15  # ‖error‖ / ‖gradient‖ up to which training does without feedback: four bits
_FEWEST_BITS = 4
# Codecs that cannot stand on the wire, and why.
_OFF_WIRE = {
    "pq": "it learns a codebook for each tensor, in tenths of a second",
    "kmeans": "it learns a codebook for each tensor; take affine(4)",
    "svd": "it decomposes each tensor; take powersgd(4)",
    "rotate": "it decomposes each tensor to learn its rotation",
    "gaps": "it codes positions, not floats; it codes the mask of topk",
    "constant": "it codes arrays of equal elements only",
    "grid": "it looks for stored weights' grids, which gradients have not",
    "palette": "it is for arrays of few distinct values, which gradients have not",
}


def parse_compressor(text: str, *, feedback: Feedback = "auto") -> Compressor:
    """Return the compressor that a text describes.

    Parameters
    ----------
    text : str
        A tree such as ``topk(0.01, values=affine(8))``, or one of the recipes: ``dense``, ``fp16``,
        ``bf16``, ``int8``, ``int4``, ``int2``, ``qsgd(4)``, ``powersgd(4)``, ``randomk(0.01)``,
        ``threshold(0.001)``, ``adaptive_threshold(0.01)``, ``sampled_threshold(0.01)``,
        ``error_bounded(max_rel_l2=0.1)``, ``feedback(TEXT, dtype="bfloat16", decay=0.9)``,
        ``dgc(0.001, momentum=0.9, values=affine(8))``, ``warmup(TEXT, steps=100)``,
        ``phases(TEXT, beginning=0.01, middle=0.02, final=0.05)``, ``per_role(TEXT)``,
        ``owners(TEXT)``, ``adaptive(TEXT, TEXT, every=20)``.
    feedback : bool or "auto"
        Whether to wrap error feedback around it. With ``"auto"`` there is some where much is left
        out in one direction: sparse trees, signs, fewer than four bits, low rank, loose error
        bounds; there is none where the error is small or zero on average: dense, fp16, bf16, int8,
        int4, qsgd, randomk scaled up.

    Raises
    ------
    GradientError
        If the text is none of them, an argument is wrong, or a tree cannot go on the wire.

    Examples
    --------
    >>> parse_compressor("powersgd(2)", feedback=False)
    PowerSgd(rank=2, warm_start=True, seed=0)
    >>> type(parse_compressor("topk(0.01)")).__name__
    'ErrorFeedback'
    """
    if feedback not in (True, False, "auto"):
        raise GradientError(f'feedback is True, False or "auto"; got {feedback!r}')
    call = Call.of(text)
    builder = RECIPES.get(call.name, _tree)
    return builder(call, feedback)


def _fed_back(leaf: Compressor, feedback: Feedback, *, needed: bool, **fields: Any) -> Compressor:
    """Return a leaf, within error feedback if that is asked for, or needed and left open."""
    wanted = needed if feedback == "auto" else feedback
    return made("feedback", ErrorFeedback, inner=leaf, **fields) if wanted else leaf


def _tree(call: Call, feedback: Feedback) -> Compressor:
    tree = _wire_tree(call.text)
    return _fed_back(TreeCompressor(tree), feedback, needed=needs_feedback(tree))


def _wire_tree(text: str) -> Node:
    try:
        tree = parse_tree(text)
    except PlanError as error:
        named = f"; compressors that are no trees: {', '.join(sorted(RECIPES))}"
        unknown = isinstance(error, UnknownCodecError)
        raise GradientError(f"{error}{named if unknown else ''}") from error
    for codec in tree.walk():
        # A sparse tree's mask is coded by what codes positions.
        if codec.id in _OFF_WIRE and not (codec.id == "gaps" and tree.codec is not codec):
            raise GradientError(f"{codec.id} cannot go on the wire: {_OFF_WIRE[codec.id]}")
    if getattr(tree.codec, "keep", None) == 0:
        raise GradientError(f"{tree.codec.id} that keeps no element would never send anything")
    return tree


def needs_feedback(tree: Node) -> bool:
    """Return whether a tree leaves so much of a gradient out that it must be sent later."""
    if tree.lossless or isinstance(tree.codec, (Cast, Nf4)):
        return False
    return not (isinstance(tree.codec, Affine) and tree.codec.bits >= _FEWEST_BITS)


def _named_tree(text: str) -> Builder:
    """Return the builder of a name that stands for a tree."""

    def build(call: Call, feedback: Feedback) -> Compressor:
        call.bound()
        return _tree(Call.of(text), feedback)

    return build


def _leaf(
    make: Callable[..., Compressor], names: tuple[str, ...], *, needed: bool, texts: str = ""
) -> Builder:
    """Return the builder of a compressor whose fields are numbers, but for some that are texts."""

    def build(call: Call, feedback: Feedback) -> Compressor:
        fields = _fields(call.bound(*names), texts.split())
        if "values" in fields:
            _wire_tree(fields["values"])
        return _fed_back(made(call.name, make, **fields), feedback, needed=needed)

    return build


def _fields(arguments: Mapping[str, str], texts: list[str]) -> dict[str, Any]:
    named = {"indices": "mask"}
    return {
        named.get(name, name): text_of(value) if name in texts else value_of(value)
        for name, value in arguments.items()
    }


def _dense(call: Call, feedback: Feedback) -> Compressor:
    call.bound()
    return _fed_back(Dense(), feedback, needed=False)


def _randomk(call: Call, feedback: Feedback) -> Compressor:
    """Build a random selection: scaled up, or with error feedback, never both."""
    fields = _fields(call.bound("keep", "seed", "scale"), [])
    fields.setdefault("scale", feedback is not True)
    leaf = made(call.name, RandomK, **fields)
    if leaf.scale and feedback is True:
        raise GradientError(
            "randomk: values that are scaled up diverge with error feedback; set scale=false"
        )
    return _fed_back(leaf, feedback, needed=not leaf.scale)


def _error_bounded(call: Call, feedback: Feedback) -> Compressor:
    fields = _fields(call.bound("max_rel_l2", "max_abs", "tree"), ["tree"])
    if "tree" in fields:
        _wire_tree(fields["tree"])
    leaf = made(call.name, ErrorBounded, **fields)
    loose = leaf.max_rel_l2 is None or leaf.max_rel_l2 > SMALL_ERROR
    return _fed_back(leaf, feedback, needed=loose)


def _feedback(call: Call, feedback: Feedback) -> Compressor:
    fields = call.bound("inner", "dtype", "decay")
    inner = parse_compressor(_inner(call, fields), feedback=False)
    return _fed_back(inner, feedback, needed=True, **_fields(fields, ["dtype"]))


def _inner(call: Call, fields: dict[str, str]) -> str:
    if "inner" not in fields:
        raise GradientError(f"{call.name} is wrapped around another compressor; give its text")
    return text_of(fields.pop("inner"))


def _dgc(call: Call, feedback: Feedback) -> Compressor:
    from tensorcomp.gradients.wrappers.momentum import MomentumCorrection

    if feedback is False:
        raise GradientError("dgc is momentum correction around error feedback; it needs feedback")
    own = ("momentum", "clip", "workers", "nesterov", "masking")
    arguments = call.bound("keep", "values", "indices", "mask", *own)
    fields = {name: value_of(arguments.pop(name)) for name in own if name in arguments}
    arguments.setdefault("keep", "0.001")
    tree = _wire_tree(f"topk({', '.join(f'{name}={text}' for name, text in arguments.items())})")
    inner = ErrorFeedback(TreeCompressor(tree))
    return cast(Compressor, made(call.name, MomentumCorrection, inner=inner, **fields))


def _warmup(call: Call, feedback: Feedback) -> Compressor:
    from tensorcomp.gradients.wrappers.warmup import Warmup

    arguments = call.bound("inner", "steps", "ratios", "each")
    inner = parse_compressor(_inner(call, arguments), feedback=feedback)
    names = {"steps": "dense_steps", "ratios": "ratios", "each": "steps_each"}
    fields = {names[name]: value_of(value) for name, value in arguments.items()}
    if not isinstance(fields.get("ratios", ()), tuple):
        fields["ratios"] = (fields["ratios"],)
    return made(call.name, Warmup, inner=inner, **fields)


def _owners(call: Call, feedback: Feedback) -> Compressor:
    from tensorcomp.gradients.wrappers.reduce_scatter import ReduceScatter

    return ReduceScatter(parse_compressor(_inner(call, call.bound("inner")), feedback=feedback))


def _phases(call: Call, feedback: Feedback) -> Compressor:
    from tensorcomp.gradients.base import leaf_of
    from tensorcomp.gradients.wrappers.phases import PHASES, PhaseTolerance

    arguments = call.bound("inner", *PHASES)
    inner = parse_compressor(_inner(call, arguments), feedback=feedback)
    kind = "bounds" if isinstance(leaf_of(inner), ErrorBounded) else "ratios"
    values = {name: value_of(value) for name, value in arguments.items()}
    return made(call.name, PhaseTolerance, inner=inner, **{kind: values})


def _per_role(call: Call, feedback: Feedback) -> Compressor:
    from tensorcomp.gradients.wrappers.per_role import PerRole

    arguments = call.bound("inner", "small", "dense_roles")
    inner = parse_compressor(_inner(call, arguments), feedback=feedback)
    fields = {name: value_of(value) for name, value in arguments.items()}
    if isinstance(fields.get("dense_roles"), str):
        fields["dense_roles"] = tuple(fields["dense_roles"].replace(",", " ").split())
    return made(call.name, PerRole, inner=inner, **fields)


def _adaptive(call: Call, feedback: Feedback) -> Compressor:
    from tensorcomp.gradients.autotune.adaptive import Adaptive

    settings = replace(call, positional=()).bound("max_rel_l2", "every", "hysteresis")
    fields: dict[str, Any] = {name: value_of(value) for name, value in settings.items()}
    if call.positional:
        texts = [text_of(text) for text in call.positional]
        fields["candidates"] = {text: parse_compressor(text, feedback=False) for text in texts}
    return _fed_back(made(call.name, Adaptive, **fields), feedback, needed=True)


_PARTS = ("values", "mask", "indices")
_PART_TEXTS = " ".join(_PARTS)

RECIPES: Mapping[str, Builder] = {
    "adaptive": _adaptive,
    "adaptive_threshold": _leaf(
        AdaptiveThreshold, ("density", *_PARTS, "seed"), needed=True, texts=_PART_TEXTS
    ),
    "bf16": _named_tree('cast("BF16", values=raw)'),
    "dense": _dense,
    "dgc": _dgc,
    "error_bounded": _error_bounded,
    "feedback": _feedback,
    "fp16": _named_tree('cast("F16", values=raw)'),
    "int2": _named_tree("affine(2, 128)"),
    "int4": _named_tree("affine(4, 128)"),
    "int8": _named_tree("affine(8, 128)"),
    "owners": _owners,
    "per_role": _per_role,
    "phases": _phases,
    "powersgd": _leaf(PowerSgd, ("rank", "warm_start", "seed"), needed=True),
    "qsgd": _leaf(Qsgd, ("bits", "group", "seed"), needed=False),
    "randomk": _randomk,
    "sampled_threshold": _leaf(
        SampledThreshold, ("density", "sample", *_PARTS, "seed"), needed=True, texts=_PART_TEXTS
    ),
    "threshold": _leaf(Threshold, ("value", *_PARTS), needed=True, texts=_PART_TEXTS),
    "warmup": _warmup,
}
