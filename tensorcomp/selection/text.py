"""Parse and print scores and granularities: ``snip``, ``nm(2, 4, axis=0)``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, TypeVar

from tensorcomp._expressions import Language, changed_fields, format_call, parse
from tensorcomp.codecs.arguments import check_arguments
from tensorcomp.errors import PruningError

_T = TypeVar("_T")


class Named:
    """Base of dataclasses that are written as a name, `id`, with arguments."""

    id: ClassVar[str]

    def __post_init__(self) -> None:
        check_arguments(self)  # type: ignore[arg-type]  # subclasses are dataclasses

    def __str__(self) -> str:
        """Return the shortest text that is parsed to an equal object."""
        return format_call(self.id, changed_fields(self))


def parse_named(text: str, kinds: Mapping[str, type[_T]], noun: str) -> _T:
    """Return the object of a text: an id of `kinds`, perhaps with arguments."""
    call = parse(text, Language(noun, f"a {noun}'s name", PruningError))
    if call.name not in kinds:
        raise PruningError(f"no {noun} is called {text!r}; there are {', '.join(kinds)}")
    return call.construct(kinds[call.name])
