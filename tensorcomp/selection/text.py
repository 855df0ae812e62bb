"""Scores and granularities as texts: ``snip``, ``random(7)``, ``nm(2, 4, axis=0)``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import TypeVar

from tensorcomp.errors import PruningError

_CALL = re.compile(r"\s*([a-z_]+)\s*(?:\(([^()]*)\))?\s*")
_ARGUMENT = re.compile(r"\s*(?:([a-z_]+)\s*=)?\s*([-+.\w]+)\s*")

Thing = TypeVar("Thing")


def parse_call(text: str, kinds: Mapping[str, type[Thing]], what: str) -> Thing:
    """Return the object that a text names.

    Parameters
    ----------
    text : str
        An id, with arguments in parentheses if need be; they are numbers.
    kinds : mapping of str to dataclass
        By id.
    what : str
        What is parsed, for messages.

    Raises
    ------
    PruningError
        If no such kind is there, or the arguments do not suit it.
    """
    match = _CALL.fullmatch(text) if isinstance(text, str) else None
    kind = kinds.get(match[1]) if match else None
    if match is None or kind is None:
        raise PruningError(f"no {what} is called {text!r}; there are {', '.join(kinds)}")
    positional: list[int | float] = []
    named: dict[str, int | float] = {}
    for argument in (match[2] or "").split(",") if (match[2] or "").strip() else []:
        name, value = _argument(argument, text, what)
        if name is None and named:
            raise PruningError(f"{what} {text!r}: an argument without a name follows a named one")
        if name is None:
            positional.append(value)
        else:
            named[name] = value
    try:
        return kind(*positional, **named)
    except TypeError as error:
        taken = ", ".join(field.name for field in fields(kind))  # type: ignore[arg-type]
        raise PruningError(f"{what} {text!r}: its arguments are {taken or 'none'}") from error
    except ValueError as error:
        raise PruningError(f"{what} {text!r}: {error}") from error


def _argument(text: str, whole: str, what: str) -> tuple[str | None, int | float]:
    match = _ARGUMENT.fullmatch(text)
    if match is None:
        raise PruningError(f"{what} {whole!r}: {text.strip()!r} is no number")
    try:
        return match[1], int(match[2])
    except ValueError:
        pass
    try:
        return match[1], float(match[2])
    except ValueError:
        raise PruningError(f"{what} {whole!r}: {match[2]!r} is no number") from None


def format_call(thing: object) -> str:
    """Return the shortest text that `parse_call` turns into an equal object.

    Parameters
    ----------
    thing : dataclass
        With an attribute ``id``.
    """
    given = [
        f"{field.name}={getattr(thing, field.name)!r}"
        for field in fields(thing)  # type: ignore[arg-type]
        if getattr(thing, field.name) != field.default
    ]
    name = thing.id  # type: ignore[attr-defined]
    return f"{name}({', '.join(given)})" if given else str(name)
