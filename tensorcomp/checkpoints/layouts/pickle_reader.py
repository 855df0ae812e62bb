"""Read the objects of a pickle without importing or calling anything.

The opcodes are followed on a stack of plain values (see `pickle_objects`).
"""

from __future__ import annotations

import pickletools
import warnings
from collections.abc import Callable
from typing import IO, Any, cast

import numpy as np

from tensorcomp.checkpoints.layouts.pickle_objects import Call, Made, Named, as_key, call
from tensorcomp.errors import PARSING_ERRORS, CheckpointError

_LINE_BYTES = 64  # of most lines in pickles


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
            target.update(map(as_key, items))
        elif isinstance(target, Made):
            target.elements.extend(items)
        else:
            raise TypeError(f"{type(target).__name__} takes no elements")

    def set_items(self, items: list[Any]) -> None:
        target = self._stack[-1]
        pairs = zip(map(as_key, items[::2]), items[1::2], strict=True)
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
    "FROZENSET": lambda machine, _: machine.push(set(map(as_key, machine.pop_mark()))),
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
