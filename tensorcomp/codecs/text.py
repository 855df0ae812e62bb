"""The text form of a tree, ``name(arguments, part=subtree)``, and its JSON form.

Text is parsed by a grammar of one page and never evaluated::

    tree     = name [ "(" [ argument { "," argument } ] ")" ]
    argument = value | name "=" ( value | tree )
    value    = number | "true" | "false" | "null" | JSON string

Arguments without a name fill the codec's fields in their order; a name that is a field sets it, any
other is a part. A part that is left out gets the codec's default subtree.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, NamedTuple

import numpy as np

from tensorcomp.codecs.base import ArraySpec, Codec, Filter, Transform
from tensorcomp.codecs.registry import codec_class
from tensorcomp.codecs.tree import Node
from tensorcomp.errors import PlanError

_TOKEN = re.compile(
    r"\s*(?:(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<name>[A-Za-z_]\w*)"
    r'|(?P<string>"(?:[^"\\]|\\.)*")|(?P<mark>[(),=]))'
)
_LITERALS = {"true": True, "false": False, "null": None}
_DEEPEST = 16
_LONGEST = 1 << 14
_MOST_DIGITS = 640  # that Python makes an integer of, whatever its settings
_SHOWN = 200
_TELLING = ("keep", "bits", "sparsity")  # first fields that a short text always has


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


@functools.lru_cache(maxsize=1024)
def parse_tree(text: str) -> Node:
    """Return the tree that a text describes.

    Parameters
    ----------
    text : str
        For example ``fields(exponent=huffman(contexts=8), mantissa=bitpack)``.

    Raises
    ------
    PlanError
        If the text breaks the grammar, names an unknown codec, argument or part, or puts a codec
        where its kind may not stand. The message says where.
    """
    if len(text) > _LONGEST:
        raise PlanError(f"a tree's text has at most {_LONGEST} characters; got {len(text)}")
    tokens = _tokenize(text)
    node, end = _parse_node(text, tokens, 0, 0)
    if tokens[end].kind != "end":
        raise _unexpected(text, tokens[end], "the end")
    return _root(node)


def _root(node: Node) -> Node:
    if isinstance(node.codec, Filter):
        raise PlanError(
            f"{node.codec.id} filters bytes, so it cannot be the root of a tree; "
            f"put it behind a serializer: raw(bytes={node.codec.id})"
        )
    return node


def _tokenize(text: str) -> list[_Token]:
    tokens = []
    position = 0
    stop = len(text.rstrip())
    while position < stop:
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            position += len(text[position:]) - len(text[position:].lstrip())
            raise PlanError(
                f"cannot read {text[position:][:20]!r} at character {position} of the tree "
                f"{_shown(text)}"
            )
        start = match.start(match.lastgroup)
        tokens.append(_Token(match.lastgroup, match[match.lastgroup], start))
        position = match.end()
    tokens.append(_Token("end", "", position))
    return tokens


def _unexpected(text: str, token: _Token, wanted: str) -> PlanError:
    found = _shown(token.text) if token.text else "the end"
    return PlanError(
        f"expected {wanted}, found {found} at character {token.position} of the tree {_shown(text)}"
    )


def _shown(text: str) -> str:
    """Return a text as it stands in a message: one line that is not too long."""
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r} …"


def _parse_node(text: str, tokens: list[_Token], at: int, depth: int) -> tuple[Node, int]:
    token = tokens[at]
    if token.kind != "name" or token.text in _LITERALS:
        raise _unexpected(text, token, "a codec's name")
    if depth > _DEEPEST:
        raise PlanError(f"a tree is at most {_DEEPEST} codecs deep: {text[:60]!r} …")
    cls = codec_class(token.text)
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    config: dict[str, Any] = {}
    children: dict[str, Node] = {}
    at += 1
    if tokens[at].text == "(":
        at += 1
        while tokens[at].text != ")":
            key: str | None = None
            if tokens[at].kind == "name" and tokens[at + 1].text == "=":
                key = tokens[at].text
                at += 2
            elif len(config) < len(names):
                key = names[len(config)]
            if key is None:
                raise PlanError(f"{cls.id} takes {len(names)} arguments at most, in {_shown(text)}")
            key = getattr(cls, "part_aliases", {}).get(key, key)
            if key in config or key in children:
                raise PlanError(f"{cls.id} is given {key!r} twice, in {_shown(text)}")
            if key in names:
                config[key], at = _parse_value(text, tokens, at)
            else:
                children[key], at = _parse_node(text, tokens, at, depth + 1)
            if tokens[at].text == ",":
                at += 1
                if tokens[at].text == ")":
                    raise _unexpected(text, tokens[at], "an argument")
            elif tokens[at].text != ")":
                raise _unexpected(text, tokens[at], "',' or ')'")
        at += 1
    return build_node(cls, config, children), at


def _parse_value(text: str, tokens: list[_Token], at: int) -> tuple[Any, int]:
    token = tokens[at]
    if token.kind == "number":
        is_integer = re.fullmatch(r"[-+]?\d+", token.text)
        if is_integer and len(token.text) > _MOST_DIGITS:
            raise PlanError(f"a number has at most {_MOST_DIGITS} digits; got {len(token.text)}")
        return (int(token.text) if is_integer else float(token.text)), at + 1
    if token.kind == "string":
        try:
            return json.loads(token.text), at + 1
        except json.JSONDecodeError as error:
            raise PlanError(
                f"{_shown(token.text)} is no JSON string, in the tree {_shown(text)}"
            ) from error
    if token.kind == "name" and token.text in _LITERALS:
        return _LITERALS[token.text], at + 1
    raise _unexpected(text, token, "a number, true, false, null or a quoted string")


def build_node(cls: type[Codec], config: Mapping[str, Any], children: Mapping[str, Node]) -> Node:
    """Return a node of this class; parts that are not given get their default subtree.

    Raises
    ------
    PlanError
        If the codec has no such part, or refuses the configuration.
    """
    try:
        codec = cls(**config)
    except (TypeError, ValueError) as error:
        raise PlanError(f"{cls.id}: {error}") from error
    if not isinstance(codec, Transform):
        return Node(codec, tuple(children.items()))
    parts = list(codec.parts(ArraySpec((0,), np.dtype(np.uint8))))
    for name in children:
        if name not in parts:
            raise PlanError(f"{cls.id} has no argument or part {name!r}; its parts are {parts}")
    defaults = codec.default_parts
    return Node(
        codec,
        tuple((name, children.get(name) or parse_tree(defaults[name])) for name in parts),
    )


def format_tree(node: Node) -> str:
    """Return the text of a tree; ``parse_tree`` of it gives an equal tree.

    Every part is written out, fields only where they differ from their defaults.
    """
    return node.text


def short_tree(node: Node) -> str:
    """Return a short text of a tree, for people; ``parse_tree`` of it gives an equal tree.

    Fields and parts are written where they differ from their defaults; how much a codec keeps, and
    in how many bits, in any case.
    """
    config: dict[str, Any] = {}
    items: list[str] = []
    for place, field in enumerate(fields(node.codec)):  # type: ignore[arg-type]
        value = getattr(node.codec, field.name)
        default = field.default is not MISSING and value == field.default
        if not default or (place == 0 and field.name in _TELLING):
            text = json.dumps(value)
            items.append(text if len(config) == place else f"{field.name}={text}")
            config[field.name] = value
    defaults = dict(build_node(type(node.codec), config, {}).children)
    for name, child in node.children:
        if defaults.get(name) != child:
            items.append(f"{name}={short_tree(child)}")
    return f"{node.codec.id}({', '.join(items)})" if items else node.codec.id


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
    return _root(_from_json(value, 0))


def _from_json(value: Any, depth: int) -> Node:
    if depth > _DEEPEST:
        raise PlanError(f"a tree is at most {_DEEPEST} codecs deep")
    if not (
        isinstance(value, dict)
        and isinstance(value.get("id"), str)
        and isinstance(value.get("config", {}), dict)
        and isinstance(value.get("parts", {}), dict)
    ):
        raise PlanError(f"expected an object with id, config and parts; got {str(value)[:80]!r}")
    parts = value.get("parts", {})
    children = {name: _from_json(child, depth + 1) for name, child in parts.items()}
    return build_node(codec_class(value["id"]), value.get("config", {}), children)
