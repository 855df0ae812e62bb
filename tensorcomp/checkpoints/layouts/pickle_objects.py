"""Describe the objects of a pickle that is followed and not loaded.

Dicts, lists, tuples, sets, numbers and texts are what they are; a class or function is a `Named`,
what is made by calling one a `Made`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

_MAX_DEPTH = 1000  # of what is walked
# Dicts by other names; what they are called with are their pairs, or of `defaultdict` its factory.
_DICTS = frozenset(
    ("collections.OrderedDict", "collections.defaultdict", "collections.Counter", "builtins.dict")
)
_SETS = frozenset(f"{module}.set" for module in ("builtins", "__builtin__"))


@dataclass(frozen=True, slots=True)
class Named:
    """A class or function, by its module and name."""

    name: str


@dataclass(slots=True, eq=False)
class Made:
    """An object that loading the pickle would make by a call.

    Attributes
    ----------
    maker : object
        Usually a `Named`.
    args : object
        What it would be called with: usually a tuple.
    state : object
        What would be set on it afterwards; None if nothing.
    items : dict
        Items that would be set on it.
    elements : list
        Elements that would be added to it.
    """

    maker: Any
    args: Any = ()
    state: Any = None
    items: dict[Any, Any] = field(default_factory=dict)
    elements: list[Any] = field(default_factory=list)


_PLAIN = frozenset((int, float, bool, str, bytes, bytearray, type(None), Named))
_CONTAINERS = dict, list, tuple, set, Made


Call = Callable[[Any, Any], Any]


def call(maker: Any, args: Any) -> Any:
    """Return a dict or set for the makers of such, and a `Made` for any other."""
    name = maker.name if isinstance(maker, Named) else ""
    if name in _DICTS:
        if not args or name == "collections.defaultdict":
            return {}
        given = args[0] if isinstance(args, tuple) else None
        return given if isinstance(given, dict) else Made(maker, args)
    if name in _SETS and isinstance(args, tuple) and len(args) == 1 and isinstance(args[0], list):
        return {as_key(element) for element in args[0]}
    return Made(maker, args)


def walk(value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield all that a value holds, each container once, with paths to it."""
    seen: set[int] = set()
    left: list[tuple[tuple[str, ...], Any]] = [((), value)]
    while left:
        path, item = left.pop()
        if isinstance(item, _CONTAINERS):
            if id(item) in seen or len(path) >= _MAX_DEPTH:
                continue
            seen.add(id(item))
            children = list(_children(item, seen))
            left += [((*path, *step), child) for step, child in reversed(children)]
        yield path, item


def _children(value: Any, seen: set[int]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield what a container holds, but plain values, and what it adds to the path.

    Of what an object is made of, each container is gone through once, whoever else has it.
    """
    if isinstance(value, dict):
        for index, (key, item) in enumerate(value.items()):
            if type(item) not in _PLAIN:
                yield (_step(key, index),), item
    elif isinstance(value, (list, tuple, set)):
        for index, item in enumerate(value):
            if type(item) not in _PLAIN:
                yield (str(index),), item
    elif isinstance(value, Made):
        for part in (value.args, value.state):
            if not isinstance(part, tuple):
                yield from _attributes(part, seen)
            elif id(part) not in seen:
                seen.add(id(part))
                for item in part:
                    yield from _attributes(item, seen)
        yield from _children(value.items, seen)
        yield from _children(value.elements, seen)


def _attributes(value: Any, seen: set[int]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the attributes in a state, or pairs of an ordered dict, or else the value."""
    if isinstance(value, dict) and id(value) not in seen:
        seen.add(id(value))
        for step, item in _children(value, seen):
            # Those of modules are dicts of further ones.
            yield (() if step[0] in ("_parameters", "_buffers", "_modules") else step), item
    elif isinstance(value, list) and id(value) not in seen and all(map(_is_pair, value)):
        seen.add(id(value))
        for index, (key, item) in enumerate(value):
            yield (_step(key, index),), item
    else:
        yield (), value


def _is_pair(value: Any) -> bool:
    is_sequence = isinstance(value, (list, tuple))
    return is_sequence and len(value) == 2 and isinstance(value[0], (str, int))


def _step(key: Any, index: int) -> str:
    """Return the part of a tensor's name for the key of a dict."""
    if _is_simple(key):
        return str(key)
    if isinstance(key, tuple) and all(map(_is_simple, key)):
        return repr(key)
    return str(index)


def _is_simple(key: Any) -> bool:
    if isinstance(key, int):
        return abs(key) < 1 << 63  # Python refuses to write longer ones
    return key is None or isinstance(key, (str, float))


def as_key(value: Any) -> Any:
    """Return a value as a key of a dict, or a stand-in for it.

    The hash of deep tuples overflows the stack.
    """
    if isinstance(value, (Made, Named, bytes)) or _is_simple(value):
        return value
    return value if isinstance(value, tuple) and all(map(_is_simple, value)) else Made(None, value)
