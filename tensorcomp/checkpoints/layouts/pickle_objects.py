"""Read the objects of a pickle without importing or calling anything.

The opcodes are followed on a stack of plain values: dicts, lists, tuples, sets, numbers and texts
become what they are; a class or function becomes a `Named`, what is made by calling one a `Made`.
"""

from __future__ import annotations

import pickletools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any, cast

import numpy as np

from tensorcomp.errors import PARSING_ERRORS, CheckpointError

_LINE_BYTES = 64  # of most lines in pickles
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


class BytesReader:
    """Bytes to be read like a file, of which a read takes no more than there is.

    Attributes
    ----------
    position : int
        Of what is read next.
    """

    def __init__(self, data: np.ndarray) -> None:
        self._data = data.data  # quicker to slice
        self.position = 0

    def read(self, size: int) -> bytes:
        """Return at most so many bytes."""
        found = bytes(self._data[self.position : self.position + size])
        self.position += len(found)
        return found

    def readline(self) -> bytes:
        """Return the bytes up to the next line feed, which is the last of them."""
        start, length = self.position, _LINE_BYTES
        while True:
            line, feed, _ = bytes(self._data[start : start + length]).partition(b"\n")
            if feed or start + length >= len(self._data):
                self.position = start + len(line + feed)
                return line + feed
            length *= 2


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
        return {_key(element) for element in args[0]}
    return Made(maker, args)


def read_pickle(
    file: IO[bytes] | BytesReader,
    persistent: Callable[[Any], Any] = lambda key: Made("storage", key),
    make: Call = call,
) -> Any:
    """Return the object of the pickle that begins at the position of a file.

    The position is behind it afterwards.

    Parameters
    ----------
    file : binary file
    persistent : callable
        Returns the object of a persistent id.
    make : callable
        Returns what a call of an object with arguments makes.

    Raises
    ------
    CheckpointError
        If it is damaged, or cut short.
    """
    machine = _Machine(persistent, make)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in texts of damaged files
            for opcode, argument, _ in pickletools.genops(cast("IO[bytes]", file)):
                machine.step(opcode.name, argument)
        return machine.pop()
    except (*PARSING_ERRORS, OSError, MemoryError, RecursionError) as error:
        what = str(error).partition(";")[0][:200]
        raise CheckpointError(f"holds a damaged pickle ({what})") from error


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


def _key(value: Any) -> Any:
    """Return a value as a key, or a stand-in: the hash of deep tuples overflows the stack."""
    if isinstance(value, (Made, Named, bytes)) or _is_simple(value):
        return value
    return value if isinstance(value, tuple) and all(map(_is_simple, value)) else Made(None, value)


class _Machine:
    """Stack and memo of the pickle machine."""

    def __init__(self, persistent: Callable[[Any], Any], make: Call) -> None:
        self._stack: list[Any] = []
        self._marks: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self._persistent = persistent
        self._make = make

    def step(self, name: str, argument: Any) -> None:
        """Follow an opcode."""
        action = _ACTIONS.get(name)
        if action is not None:
            action(self, argument)
        elif name not in _NOTHING:
            raise ValueError(f"unknown opcode {name}")

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def pop(self) -> Any:
        return self._stack.pop()

    def mark(self) -> None:
        self._marks.append(self._stack)
        self._stack = []

    def pop_mark(self) -> list[Any]:
        items, self._stack = self._stack, self._marks.pop()
        return items

    def put(self, key: int | None) -> None:
        self._memo[len(self._memo) if key is None else key] = self._stack[-1]

    def get(self, key: int) -> None:
        self.push(self._memo[key])

    def discard(self) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self.discard_mark()

    def discard_mark(self) -> None:
        self.pop_mark()

    def tuple_of(self, count: int) -> None:
        if count > len(self._stack):
            raise IndexError("too few values")
        cut = len(self._stack) - count
        self._stack[cut:] = [tuple(self._stack[cut:])]

    def append(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, list):
            target.extend(items)
        elif isinstance(target, set):
            target.update(map(_key, items))
        elif isinstance(target, Made):
            target.elements.extend(items)
        else:
            raise TypeError(f"{type(target).__name__} takes no elements")

    def set_items(self, items: list[Any]) -> None:
        target = self._stack[-1]
        pairs = zip(map(_key, items[::2]), items[1::2], strict=True)
        if isinstance(target, dict):
            target.update(pairs)
        elif isinstance(target, Made):
            target.items.update(pairs)
        else:
            raise TypeError(f"{type(target).__name__} takes no items")

    def call(self, args: Any, maker: Any) -> None:
        self.push(self._make(maker, args))

    def build(self) -> None:
        state, target = self.pop(), self._stack[-1]
        if isinstance(target, Made):
            target.state = state

    def global_name(self) -> None:
        name, module = self.pop(), self.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise TypeError("a class whose name is no text")
        self.push(Named(f"{module}.{name}"))

    def instance(self, argument: str) -> None:
        self.call(tuple(self.pop_mark()), Named(argument.replace(" ", ".", 1)))

    def object(self) -> None:
        maker, *args = self.pop_mark()
        self.call(tuple(args), maker)

    def new_with_keywords(self) -> None:
        keywords, args, maker = self.pop(), self.pop(), self.pop()
        self.call(args, maker)
        made = self._stack[-1]
        if isinstance(made, Made):
            made.state = keywords


Action = Callable[[_Machine, Any], None]
_NOTHING = frozenset(("PROTO", "FRAME", "STOP", "READONLY_BUFFER"))
_PUSHED = (
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 STRING BINSTRING SHORT_BINSTRING BINBYTES "
    "SHORT_BINBYTES BINBYTES8 BYTEARRAY8 UNICODE SHORT_BINUNICODE BINUNICODE BINUNICODE8 FLOAT "
    "BINFLOAT"
)
_ACTIONS: dict[str, Action] = {
    **dict.fromkeys(_PUSHED.split(), _Machine.push),
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "NEXT_BUFFER": lambda machine, _: machine.push(Made("buffer")),
    **dict.fromkeys(
        ("EXT1", "EXT2", "EXT4"), lambda machine, code: machine.push(Named(f"extension.{code}"))
    ),
    "MARK": lambda machine, _: machine.mark(),
    "POP": lambda machine, _: machine.discard(),
    "POP_MARK": lambda machine, _: machine.discard_mark(),
    "DUP": lambda machine, _: machine.push(machine._stack[-1]),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Machine.put),
    "MEMOIZE": lambda machine, _: machine.put(None),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Machine.get),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_SET": lambda machine, _: machine.push(set()),
    "LIST": lambda machine, _: machine.push(machine.pop_mark()),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.pop_mark())),
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "FROZENSET": lambda machine, _: machine.push(set(map(_key, machine.pop_mark()))),
    "DICT": lambda machine, _: _push_dict(machine),
    "APPEND": lambda machine, _: machine.append([machine.pop()]),
    "APPENDS": lambda machine, _: machine.append(machine.pop_mark()),
    "ADDITEMS": lambda machine, _: machine.append(machine.pop_mark()),
    "SETITEM": lambda machine, _: machine.set_items([machine.pop(), machine.pop()][::-1]),
    "SETITEMS": lambda machine, _: machine.set_items(machine.pop_mark()),
    "GLOBAL": lambda machine, name: machine.push(Named(name.replace(" ", ".", 1))),
    "STACK_GLOBAL": lambda machine, _: machine.global_name(),
    "REDUCE": lambda machine, _: machine.call(machine.pop(), machine.pop()),
    "NEWOBJ": lambda machine, _: machine.call(machine.pop(), machine.pop()),
    "NEWOBJ_EX": lambda machine, _: machine.new_with_keywords(),
    "INST": _Machine.instance,
    "OBJ": lambda machine, _: machine.object(),
    "BUILD": lambda machine, _: machine.build(),
    "PERSID": lambda machine, key: machine.push(machine._persistent(key)),
    "BINPERSID": lambda machine, _: machine.push(machine._persistent(machine.pop())),
}


def _push_dict(machine: _Machine) -> None:
    items = machine.pop_mark()
    machine.push({})
    machine.set_items(items)
