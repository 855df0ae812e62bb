"""Parse and print compressors as texts: codec trees or ``id(arguments)``.

Arguments without a name fill the compressor's fields in their order. The text of an inner
compressor, or of a tree, stands as it is or in quotes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, TypeVar

from tensorcomp._expressions import Argument, Call, Language, format_call, parse
from tensorcomp.codecs.text import parse_tree, short_tree
from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Compressor, Feedback
from tensorcomp.gradients.compressors.tree_compressor import TreeCompressor, wire_tree
from tensorcomp.gradients.registry import compressor_class
from tensorcomp.gradients.wrappers.feedback import ErrorFeedback
from tensorcomp.gradients.wrappers.schedules import Scheduler

_C = TypeVar("_C", bound=Compressor)

_LANGUAGE = Language("compressor", "a compressor's name", GradientError, 32)
_SHORT = {
    "bf16": 'cast("BF16", values=raw)',
    "fp16": 'cast("F16", values=raw)',
    "int2": "affine(2)",
    "int4": "affine(4)",
    "int8": "affine(8)",
}


def parse_compressor(text: str, *, feedback: Feedback = "auto") -> Compressor:
    """Parse the text of a compressor.

    Parameters
    ----------
    text : str
        A tree such as ``topk(0.01, values=affine(8))``, or one of ``dense``, ``fp16``, ``bf16``,
        ``int8``, ``int4``, ``int2``, ``qsgd(4)``, ``powersgd(4)``, ``randomk(0.01)``,
        ``threshold(0.001)``, ``adaptive_threshold(0.01)``, ``sampled_threshold(0.01)``,
        ``error_bounded(max_rel_l2=0.1)``, ``feedback(TEXT, dtype="bfloat16", decay=0.9)``,
        ``dgc(0.001, momentum=0.9, values=affine(8))``, ``warmup(TEXT, steps=100)``,
        ``phases(TEXT, beginning=0.01, middle=0.02, final=0.05)``, ``per_role(TEXT)``,
        ``owners(TEXT)``, ``adaptive(TEXT, TEXT, every=20)``; or what installed packages add
        (`registry`).
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
    return CompressorParser(feedback).compressor(parse(text, _LANGUAGE))


@dataclass(frozen=True)
class CompressorParser:
    """Build compressors from parsed texts.

    Parameters
    ----------
    feedback : bool or "auto"
        As for `parse_compressor`.
    """

    feedback: Feedback

    def compressor(self, call: Call) -> Compressor:
        """Build the compressor of a parsed text."""
        if call.name in _SHORT:
            call.bind(())
            return self.with_feedback(TreeCompressor(parse_tree(_SHORT[call.name])))
        found = compressor_class(call.name)
        if found is None:
            return self.with_feedback(TreeCompressor(wire_tree(call.text)))
        return found.parse(call, self)

    def argument(self, argument: Argument) -> Compressor:
        """Build the compressor of an argument, which may stand in quotes."""
        quoted = argument.value
        return self.compressor(
            parse(quoted, _LANGUAGE) if isinstance(quoted, str) else argument.call
        )

    def fields(self, make: type[_C], call: Call, **defaults: Any) -> _C:
        """Build a compressor whose fields are the arguments of a parsed text.

        Parameters
        ----------
        make : type
            A dataclass.
        call : Call
        **defaults
            Fields that the text may leave out.

        Raises
        ------
        GradientError
            If arguments do not fit the fields, or the class refuses them.
        """
        own = {make.argument_names.get(f.name, f.name): f for f in fields(make)}  # type: ignore[arg-type]
        values = dict(defaults)
        if own.pop("inner", None):
            values["inner"], arguments = self.wrapped(call, list(own))
        else:
            arguments = call.bind(list(own), aliases=make.argument_aliases)
        for name, argument in arguments.items():
            values[own[name].name] = _value(argument, own[name], make)
        return call.made(make, **values)

    def wrapped(self, call: Call, names: Sequence[str]) -> tuple[Compressor, dict[str, Argument]]:
        """Separate the inner compressor of a parsed text from its arguments."""
        arguments = call.bind(["inner", *names])
        if "inner" not in arguments:
            raise GradientError(f"{call.name}: expected the text of an inner compressor, got none")
        return self.argument(arguments.pop("inner")), arguments

    def with_feedback(self, compressor: Compressor) -> Compressor:
        """Wrap error feedback around a compressor where it is asked for."""
        wanted = compressor.needs_feedback if self.feedback == "auto" else self.feedback
        return ErrorFeedback(compressor) if wanted else compressor


def _value(argument: Argument, field: Field[Any], make: type[Compressor]) -> Any:
    if make.trees.get(field.name):
        wire_tree(argument.expression)
    if field.type == "str":
        return argument.expression
    value = argument.plain
    if not isinstance(field.default, tuple) or isinstance(value, tuple):
        return value
    return tuple(value.replace(",", " ").split()) if isinstance(value, str) else (value,)


def label(compressor: Compressor) -> str:
    """Return a short text of a compressor, which parses to an equal one.

    Error feedback is left out, and of momentum correction all but its id, ``dgc``.

    Parameters
    ----------
    compressor : Compressor

    Examples
    --------
    >>> label(parse_compressor("topk(0.01, values=affine(8), indices=gaps)"))
    'topk(0.01, values=affine(8))'
    """
    if isinstance(compressor, ErrorFeedback):
        return label(compressor.inner)
    if isinstance(compressor, TreeCompressor):
        text = short_tree(compressor.tree)
        return next((name for name, tree in _SHORT.items() if tree == text), text)
    inner: Compressor | None = getattr(compressor, "inner", None)
    if compressor.id == "dgc" and inner is not None:
        return label(inner).replace("topk(", "dgc(", 1)
    if inner is not None:
        return compressor.text().replace(inner.text(), label(inner), 1)
    if not compressor.id or isinstance(compressor, Scheduler):
        return compressor.text()
    return format_call(compressor.id, _arguments(compressor))


def short(text: str) -> str:
    """Return the `label` of the compressor of a canonical text."""
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
        first = place == 0 and field.default is not None
        if value is None or (default and not first):
            continue
        tree = field.name in compressor.trees
        text = short_tree(parse_tree(value)) if tree else json.dumps(value)
        found.append(text if first else f"{field.name}={text}")
    return found
