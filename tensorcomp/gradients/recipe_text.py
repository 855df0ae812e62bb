"""How the text of a recipe is taken apart: ``name(argument, key=argument)``, texts within texts.

::

    recipe   = name [ "(" [ argument { "," argument } ] ")" ]
    argument = [ name "=" ] ( number | "true" | "false" | "null" | string | list | recipe )
    list     = "(" [ number { "," number } ] ")"

Arguments stay texts until a recipe says what they are: a number, a tree, another recipe.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from tensorcomp.errors import GradientError, PlanError

_LONGEST = 1 << 14
_DEEPEST = 32  # parentheses within each other
_SHOWN = 60  # characters of an argument in a message
_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\((.*)\)\s*)?", re.DOTALL)
_KEYWORD = re.compile(r"\s*([A-Za-z_]\w*)\s*=(.*)", re.DOTALL)
_LITERALS = {"true": True, "false": False, "null": None}

_T = TypeVar("_T")


@dataclass(frozen=True)
class Call:
    """A recipe's name and its arguments, each of them text.

    Parameters
    ----------
    text : str
        All of it.
    name : str
    positional : tuple of str
    named : tuple of (str, str)
    """

    text: str
    name: str
    positional: tuple[str, ...] = ()
    named: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, text: str) -> Call:
        """Take a text apart.

        Raises
        ------
        GradientError
            If it is no name with arguments in parentheses.
        """
        if not isinstance(text, str) or len(text) > _LONGEST:
            raise GradientError(
                f"a compressor is a text of at most {_LONGEST} characters; got {str(text)[:60]!r}"
            )
        match = _CALL.fullmatch(text)
        pieces = None if match is None else _split(match[2] or "")
        if match is None or pieces is None:
            raise GradientError(
                f"a compressor is a name with arguments in parentheses, such as topk(0.01); "
                f"got {text[:200]!r}"
            )
        positional, named = [], []
        for piece in pieces:
            keyword = _KEYWORD.fullmatch(piece)
            if keyword is not None:
                named.append((keyword[1], keyword[2].strip()))
            elif named:
                raise GradientError(
                    f"{piece.strip()[:_SHOWN]!r} has no name, but stands behind one that has"
                )
            else:
                positional.append(piece.strip())
        return cls(text, match[1], tuple(positional), tuple(named))

    def bound(self, *names: str) -> dict[str, str]:
        """Return the arguments by name; those without a name get the first of these names.

        Raises
        ------
        GradientError
            If there are more, others, or the same twice.
        """
        known = ", ".join(names) or "none"
        if len(self.positional) > len(names):
            raise GradientError(f"{self.name} takes the arguments {known}; got {self.text[:200]!r}")
        arguments = dict(zip(names, self.positional, strict=False))
        for name, value in self.named:
            if name not in names:
                raise GradientError(f"{self.name} has no argument {name!r}, but {known}")
            if name in arguments:
                raise GradientError(f"{self.name} is given {name!r} twice in {self.text[:200]!r}")
            arguments[name] = value
        return arguments


def _split(text: str) -> list[str] | None:
    """Return what stands between the commas that are in no parentheses; None if they are unlike."""
    pieces, depth, start, quoted = [], 0, 0, False
    position = 0
    while position < len(text):
        mark = text[position]
        if quoted:
            position += mark == "\\"
            quoted = mark != '"'
        elif mark == '"':
            quoted = True
        elif mark in "()":
            depth += 1 if mark == "(" else -1
            if depth < 0:
                return None
            if depth > _DEEPEST:
                raise GradientError(
                    f"a compressor has at most {_DEEPEST} parentheses within each other; "
                    f"got {text[:_SHOWN]!r} …"
                )
        elif mark == "," and depth == 0:
            pieces.append(text[start:position])
            start = position + 1
        position += 1
    if depth or quoted:
        return None
    if not pieces and not text.strip():
        return []
    pieces.append(text[start:])
    return pieces if all(piece.strip() for piece in pieces) else None


def value_of(text: str) -> Any:
    """Return the number, truth value, null, string or tuple of numbers that an argument is.

    Raises
    ------
    GradientError
        If it is none.
    """
    if text in _LITERALS:
        return _LITERALS[text]
    if text[:1] == "(" and text[-1:] == ")":
        pieces = _split(text[1:-1].rstrip().removesuffix(","))
        if pieces is not None:
            return tuple(value_of(piece.strip()) for piece in pieces)
    try:
        if text[:1] == '"':
            return str(json.loads(text))
        return int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)
    except ValueError as error:
        raise GradientError(
            f"expected a number, true, false or a quoted text; got {text[:_SHOWN]!r}"
        ) from error


def text_of(argument: str) -> str:
    """Return an argument that is a text of its own, whether it stands in quotes or not."""
    return str(value_of(argument)) if argument[:1] == '"' else argument


def made(name: str, make: Callable[..., _T], **fields: Any) -> _T:
    """Return what a class makes of its fields.

    Raises
    ------
    GradientError
        If it refuses them; the message begins with the recipe's name.
    """
    try:
        return make(**fields)
    except (TypeError, ValueError, PlanError) as error:
        raise GradientError(f"{name}: {error}") from error
