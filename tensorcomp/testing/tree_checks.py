"""Checks of a tree without data: its forms, identity and documentation."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from tensorcomp.codecs.base import ArraySpec, Transform
from tensorcomp.codecs.text import format_tree, parse_tree, tree_from_json, tree_to_json
from tensorcomp.codecs.tree import Node


def check_text(node: Node) -> None:
    """Require that the text form parses back to an equal tree."""
    text = format_tree(node)
    assert parse_tree(text) == node, f"{text!r} parses to another tree"
    assert format_tree(parse_tree(text)) == text, f"{text!r} prints differently once parsed"


def check_json(node: Node) -> None:
    """Require that the JSON form, and each codec's configuration, survive JSON."""
    value = json.loads(json.dumps(tree_to_json(node), allow_nan=False))
    assert tree_from_json(value) == node, f"the JSON form gives another tree: {value}"
    for codec in node.walk():
        config = json.loads(json.dumps(codec.config(), allow_nan=False))
        assert type(codec)(**config) == codec, f"{codec.id}: its configuration {config} differs"


def check_identity(node: Node) -> None:
    """Require a frozen, hashable value whose `repr` is the call that makes it."""
    names: dict[str, Any] = {type(codec).__name__: type(codec) for codec in node.walk()}
    names["Node"] = Node
    assert eval(repr(node), names) == node, f"{node!r} does not evaluate to the tree"
    for codec in node.walk():
        rebuilt = type(codec)(**codec.config())
        assert rebuilt is not codec
        assert rebuilt == codec, f"{codec!r} is not equal to one of the same configuration"
        assert hash(rebuilt) == hash(codec), f"{codec!r} has another hash than an equal one"
        assert codec.id.isidentifier(), f"the id {codec.id!r} is not an identifier"
        assert codec.id == codec.id.lower(), f"the id {codec.id!r} is not in lower case"
        for name in [field.name for field in fields(codec)] or ["anything"]:  # type: ignore[arg-type]
            try:
                setattr(codec, name, None)
            except (AttributeError, TypeError):  # FrozenInstanceError is an AttributeError
                continue
            raise AssertionError(f"{codec!r} lets its field {name!r} be set")


def check_docstring(node: Node) -> None:
    """Require that the docstring states layout or parts, cost and loss."""
    for codec in node.walk():
        text = (type(codec).__doc__ or "").lower()
        wanted = "parts:" if isinstance(codec, Transform) else "layout:"
        for phrase in (wanted, "cost:", "o(", "lossless" if codec.lossless else "error"):
            assert phrase in text, f"{codec.id}: its docstring does not say {phrase!r}"


def check_parts_without_data(node: Node) -> None:
    """Require that `parts` names the same parts for every dtype, without data."""
    if isinstance(node.codec, Transform):
        for dtype in ("u1", "<u2", "<f4", "<f8"):
            specs = node.codec.parts(ArraySpec((0, 3), np.dtype(dtype)))
            assert list(specs) == [name for name, _ in node.children]


TREE_CHECKS: dict[str, Callable[[Node], None]] = {
    "its text parses back": check_text,
    "its JSON reads back": check_json,
    "is a frozen value": check_identity,
    "documents itself": check_docstring,
    "knows its parts without data": check_parts_without_data,
}
