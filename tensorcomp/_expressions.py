"""Parse and print ``name(argument, key=argument)``.

One grammar for every text of the package; it is parsed, never evaluated::

    call     = name [ "(" [ argument { "," argument } ] ")" ]
    argument = [ name "=" ] ( number | "true" | "false" | "null" | string | tuple | call )
    tuple    = "(" [ value { "," value } [ "," ] ] ")"

Numbers are Python's, ``inf`` and ``nan`` among them; strings are JSON's. Not Python's own parser:
that takes comments, operators and lambdas, refuses an argument without a name behind a named one,
and says something else about a mistake in each version.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, NamedTuple, TypeAlias, TypeVar

from tensorcomp.errors import TensorcompError

Value: TypeAlias = "bool | int | float | str | tuple[Value, ...] | Call | None"
_Token: TypeAlias = tuple[str, str, int]  # kind, text, position
_T = TypeVar("_T")

MAX_CHARACTERS = 1 << 14
_MAX_DIGITS = 640  # of an integer that Python reads whatever its settings
_SHOWN = 200  # characters of a text in a message
_LITERALS = {"true": True, "false": False, "null": None}
_TOKEN = re.compile(
    r"\s*(?:(?P<number>[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?:inf|nan)\b))"
    r'|(?P<name>[A-Za-z_]\w*)|(?P<string>"(?:[^"\\]|\\.)*")|(?P<mark>[(),=])|(?P<unknown>\S))'
)


class Language(NamedTuple):
    """Kind of texts: its words and limits, and the exception for wrong ones."""

    noun: str  # for example "tree"
    name: str  # what a name in it is, for example "a codec's name"
    error: type[TensorcompError]
    max_depth: int = 16  # levels of calls and tuples within each other

    def expected(self, wanted: str, got: str, position: int, text: str) -> TensorcompError:
        """Return the exception for what stands at a position of a text."""
        return self.error(
            f"expected {wanted}, got {got} at character {position} of the {self.noun} "
            f"{_shown(text)}"
        )


class Call(NamedTuple):
    """A name with arguments, in the order of the text."""

    name: str
    arguments: tuple[Argument, ...]
    text: str  # the whole call, as it was written
    language: Language

    def bind(
        self,
        names: Sequence[str],
        *,
        aliases: Mapping[str, str] | None = None,
        others: bool = False,
    ) -> dict[str, Argument]:
        """Assign the arguments to names; unnamed ones get the first, in order.

        Aliases are further names that stand for one of these; with ``others`` arguments of unknown
        names are returned too.
        """
        known = ", ".join(names) or "none"
        free = iter(names)
        found: dict[str, Argument] = {}
        for argument in self.arguments:
            name = argument.name or next(free, None)
            if name is None:
                raise self.error(
                    f"expected at most {len(names)} arguments ({known}), got {argument.text} too"
                )
            name = (aliases or {}).get(name, name)
            if name in found:
                raise self.error(f"got {name!r} twice")
            if name not in names and not others:
                hint = suggestion(name, names)
                raise self.error(f"expected arguments among {known}, got {name!r}{hint}")
            found[name] = argument
        return found

    def construct(self, make: Callable[..., _T]) -> _T:
        """Return an instance of a dataclass whose fields are the arguments."""
        names = [field.name for field in fields(make) if field.init]  # type: ignore[arg-type]
        values = {name: argument.plain for name, argument in self.bind(names).items()}
        for name in required_fields(make):
            if name not in values:
                raise self.error(f"expected arguments {', '.join(names)}, got no {name}")
        return self.made(make, **values)

    def made(self, make: Callable[..., _T], **values: Any) -> _T:
        """Call a class; report what it refuses with the call's name."""
        try:
            return make(**values)
        except (TypeError, ValueError, TensorcompError) as error:
            raise self.language.error(f"{self.name}: {error}") from error

    def error(self, message: str) -> TensorcompError:
        """Return the language's exception, with the call's name and text."""
        return self.language.error(f"{self.name}: {message}, in {_shown(self.text)}")


class Argument(NamedTuple):
    """One argument of a call, and its position in the text."""

    name: str | None
    value: Value
    text: str
    position: int
    whole: str
    language: Language

    @property
    def plain(self) -> Any:
        """The number, truth value, null, string or tuple; a call is an error."""
        if isinstance(self.value, Call):
            raise self._wrong("a number, true, false, null or a quoted string")
        return self.value

    @property
    def call(self) -> Call:
        """The call; raises where the argument is something else."""
        if not isinstance(self.value, Call):
            raise self._wrong(self.language.name)
        return self.value

    @property
    def expression(self) -> str:
        """The text of an expression, which may stand in quotes."""
        return self.value if isinstance(self.value, str) else self.text

    def _wrong(self, wanted: str) -> TensorcompError:
        return self.language.expected(wanted, _shown(self.text), self.position, self.whole)


def parse(text: str, language: Language) -> Call:
    """Parse a text; an error has the position of the first mistake."""
    if not isinstance(text, str) or len(text) > MAX_CHARACTERS:
        got = f"{len(text)}" if isinstance(text, str) else f"{text!r:.60}"
        raise language.error(
            f"a {language.noun} is a text of at most {MAX_CHARACTERS} characters; got {got}"
        )
    parser = _Parser(text, language)
    call = parser.call(0)
    if parser.kind != "end":
        raise parser.unexpected("the end")
    return call


def required_fields(make: Any) -> list[str]:
    """Return the names of a dataclass's fields that have no default."""
    return [field.name for field in fields(make) if field.init and field.default is MISSING]


def changed_fields(thing: object) -> Iterator[str]:
    """Yield ``name=value`` for each field that differs from its default."""
    for field in fields(thing):  # type: ignore[arg-type]
        value = getattr(thing, field.name)
        if field.default is MISSING or value != field.default:
            yield f"{field.name}={json.dumps(value)}"


def format_call(name: str, arguments: Iterable[str]) -> str:
    """Return the text of a call of arguments that are texts themselves."""
    inner = ", ".join(arguments)
    return f"{name}({inner})" if inner else name


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for a known name like this one, if any."""
    import difflib  # for messages only

    near = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


class _Parser:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str, language: Language) -> None:
        self.text = text
        self.language = language
        self.tokens = list(self._tokens())
        self.at = -1
        self._advance()

    def _tokens(self) -> Iterator[_Token]:
        position = 0
        for match in _TOKEN.finditer(self.text):
            kind = str(match.lastgroup)
            position = match.start(kind)
            if kind == "unknown":
                raise self.language.error(
                    f"cannot read {self.text[position:][:20]!r} at character {position} of the "
                    f"{self.language.noun} {_shown(self.text)}"
                )
            yield kind, match[kind], position
            position = match.end()
        yield "end", "", position

    def _advance(self) -> None:
        """Take the next token."""
        self.at += 1
        self.kind, self.word, self.position = self.tokens[self.at]

    def unexpected(self, wanted: str) -> TensorcompError:
        """Return the exception for the token that is there."""
        found = _shown(self.word) if self.word else "the end"
        return self.language.expected(wanted, found, self.position, self.text)

    def _written(self, first: int) -> str:
        """Return the text from a position to the end of the last token."""
        _, word, position = self.tokens[self.at - 1]
        return self.text[first : position + len(word)]

    def call(self, depth: int) -> Call:
        """Parse a call."""
        first, name = self.position, self.word
        if self.kind != "name" or name in _LITERALS:
            raise self.unexpected(self.language.name)
        self._advance()
        arguments = self._items(depth, self._argument) if self.word == "(" else ()
        return Call(name, arguments, self._written(first), self.language)

    def _items(self, depth: int, item: Callable[[int], _T]) -> tuple[_T, ...]:
        """Parse what stands in parentheses, between commas."""
        if depth >= self.language.max_depth:
            raise self.language.error(
                f"a {self.language.noun} is at most {self.language.max_depth} levels deep; "
                f"got {self.text[:60]!r} …"
            )
        self._advance()
        items: list[_T] = []
        while self.word != ")":
            items.append(item(depth + 1))
            if self.word == ",":
                self._advance()
                if self.word == ")" and item == self._argument:
                    raise self.unexpected("an argument")
            elif self.word != ")":
                raise self.unexpected("',' or ')'")
        self._advance()
        return tuple(items)

    def _argument(self, depth: int) -> Argument:
        name = None
        if self.kind == "name" and self.tokens[self.at + 1][1] == "=":
            name = self.word
            self._advance()
            self._advance()
        first = self.position
        value = self._value(depth)
        return Argument(name, value, self._written(first), first, self.text, self.language)

    def _value(self, depth: int) -> Value:
        kind, word = self.kind, self.word
        if kind == "name" and word not in _LITERALS:
            return self.call(depth)
        if word == "(":
            return self._items(depth, self._value)
        if kind not in ("name", "number", "string"):
            raise self.unexpected("an argument")
        self._advance()
        if kind == "name":
            return _LITERALS[word]
        if kind == "number" and not word.lstrip("+-").isdecimal():
            return float(word)
        if kind == "number" and len(word) > _MAX_DIGITS:
            raise self.language.error(f"a number has at most {_MAX_DIGITS} digits; got {len(word)}")
        try:
            value: int | str = json.loads(word) if kind == "string" else int(word)
        except json.JSONDecodeError as error:
            raise self.language.error(
                f"expected a JSON string, got {_shown(word)} in the {self.language.noun} "
                f"{_shown(self.text)}"
            ) from error
        return value


def _shown(text: str) -> str:
    """Return a text as it stands in a message: one line that is not too long."""
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r} …"
