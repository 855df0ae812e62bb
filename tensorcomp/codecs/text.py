"""The text form ``name(arguments, part=subtree)`` and JSON form of trees.

Arguments without a name fill the codec's fields in their order; a name that is a field sets it, any
other is a part. A part that is left out gets the codec's default subtree.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from tensorcomp._expressions import Call, Language, format_call, parse, required_fields
from tensorcomp.codecs.base import ArraySpec, Codec, Filter, Transform
from tensorcomp.codecs.registry import codec_class
from tensorcomp.codecs.tree import Node
from tensorcomp.errors import PlanError, UnknownCodecError

_MAX_DEPTH = 16
_TREE = Language("tree", "a codec's name", PlanError, _MAX_DEPTH)
_ALWAYS_SHOWN = ("keep", "bits", "sparsity")  # first fields that a short text always has


def parse_tree(text: str) -> Node:
    """Parse the text of a codec tree.

    Parameters
    ----------
    text : str
        For example ``fields(exponent=huffman(contexts=8), mantissa=bitpack)``.

    Raises
    ------
    PlanError
        If the text breaks the grammar, names an unknown codec (`UnknownCodecError`), argument or
        part, or puts a codec where its kind may not stand. The message says where.
    """
    return parse_text(text) if isinstance(text, str) else _node(parse(text, _TREE), "")


@functools.lru_cache(maxsize=1024)
def parse_text(text: str) -> Node:
    """Parse a text as `parse_tree` does, each text once."""
    return _root(_node(parse(text, _TREE), ""))


def _root(node: Node) -> Node:
    if isinstance(node.codec, Filter):
        raise PlanError(
            "expected a transform or a serializer at the root of a tree, got the filter "
            f"{node.codec.id}; put it behind a serializer: raw(bytes={node.codec.id})"
        )
    return node


def _node(call: Call, place: str) -> Node:
    """Return the node of a call; `place` says which part it codes, for messages."""
    cls = _class_of(call.name, place)
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    config: dict[str, Any] = {}
    children: dict[str, Node] = {}
    for name, argument in call.bind(names, aliases=cls.part_aliases, others=True).items():
        if name in names:
            config[name] = argument.plain
        else:
            children[name] = _node(argument.call, f"part {name!r} of {cls.id}: ")
    return build_node(cls, config, children)


def _class_of(name: str, place: str) -> type[Codec]:
    try:
        return codec_class(name)
    except UnknownCodecError as error:
        raise UnknownCodecError(f"{place}{error}", codec=error.codec, known=error.known) from None


def build_node(cls: type[Codec], config: Mapping[str, Any], children: Mapping[str, Node]) -> Node:
    """Return a node of this class.

    Parts that are not given get their default subtree.

    Raises
    ------
    PlanError
        If the codec has no such part, or refuses the configuration.
    """
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    if unknown := sorted(set(config) - set(names)):
        known = ", ".join(names) or "none"
        raise PlanError(f"{cls.id}: expected arguments among {known}, got {unknown[0]!r}")
    for name in required_fields(cls):
        if name not in config:
            raise PlanError(
                f"{cls.id}: expected the argument {name}, got none; give {cls.id}({name}=…)"
            )
    try:
        codec = cls(**config)
    except (TypeError, ValueError) as error:
        raise PlanError(f"{cls.id}: {error}") from error
    if not isinstance(codec, Transform):
        return Node(codec, tuple(children.items()))
    parts = list(codec.parts(ArraySpec((0,), np.dtype(np.uint8))))
    for name in children:
        if name not in parts:
            raise PlanError(f"{cls.id}: expected parts among {parts}, got {name!r}")
    defaults = codec.default_parts
    found = ((name, children.get(name) or parse_tree(defaults[name])) for name in parts)
    return Node(codec, tuple(found))


def format_tree(node: Node) -> str:
    """Return the text of a tree; ``parse_tree`` of it gives an equal tree.

    Every part is written out, fields only where they differ from their defaults.
    """
    return node.text


def short_tree(node: Node) -> str:
    """Return a short text of a tree, for people.

    ``parse_tree`` of it gives an equal tree.

    Fields and parts are written where they differ from their defaults; how much a codec keeps, and
    in how many bits, in any case.
    """
    config: dict[str, Any] = {}
    items: list[str] = []
    for place, field in enumerate(fields(node.codec)):  # type: ignore[arg-type]
        value = getattr(node.codec, field.name)
        default = field.default is not MISSING and value == field.default
        if not default or (place == 0 and field.name in _ALWAYS_SHOWN):
            text = json.dumps(value)
            items.append(text if len(config) == place else f"{field.name}={text}")
            config[field.name] = value
    defaults = dict(build_node(type(node.codec), config, {}).children)
    for name, child in node.children:
        if defaults.get(name) != child:
            items.append(f"{name}={short_tree(child)}")
    return format_call(node.codec.id, items)


def tree_to_json(node: Node) -> dict[str, Any]:
    """Return the JSON form: ``{"id": …, "config": {…}, "parts": {name: …}}``."""
    return {
        "id": node.codec.id,
        "config": node.codec.config(),
        "parts": {name: tree_to_json(child) for name, child in node.children},
    }


def tree_from_json(value: Any) -> Node:
    """Return the tree of a JSON form.

    Raises
    ------
    PlanError
        If it is not what `tree_to_json` gives.
    """
    return _root(_from_json(value, "", 0))


def _from_json(value: Any, place: str, depth: int) -> Node:
    if depth > _MAX_DEPTH:
        raise PlanError(f"expected a tree at most {_MAX_DEPTH} levels deep, got a deeper one")
    if not (
        isinstance(value, dict)
        and isinstance(value.get("id"), str)
        and isinstance(value.get("config", {}), dict)
        and isinstance(value.get("parts", {}), dict)
    ):
        raise PlanError(
            f"{place}expected an object with id, config and parts, got {str(value)[:80]!r}"
        )
    cls = _class_of(value["id"], place)
    children = {
        name: _from_json(child, f"part {name!r} of {cls.id}: ", depth + 1)
        for name, child in value.get("parts", {}).items()
    }
    return build_node(cls, value.get("config", {}), children)
