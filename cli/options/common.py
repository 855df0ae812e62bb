"""Arguments and options that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ..command import MOST_USED, OUTPUT, option

Verb = TypeVar("Verb", bound=Callable[..., Any])


class _PathType(click.ParamType[Path]):
    """A path, but not an empty one, which `Path` takes for the current folder."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if not value:
            self.fail("the path is empty", param, ctx)
        return Path(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[Any]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


path = _PathType()


def together(*options: Callable[[Verb], Verb]) -> Callable[[Verb], Verb]:
    """Return one decorator for several options, which help shows in this order."""

    def decorate(verb: Verb) -> Verb:
        for decorator in reversed(options):
            verb = decorator(verb)
        return verb

    return decorate


def output(
    metavar: str = "OUT", text: str = "Where to write.", *, required: bool = False
) -> Callable[[Verb], Verb]:
    """Return the option ``-o``."""
    return option(
        *("-o", "--output", "out"),
        type=path,
        metavar=metavar,
        help=text,
        required=required,
        group=MOST_USED,
    )


source = click.argument("source", type=path, metavar="INPUT", help="A checkpoint file or a folder.")
threads = option(
    "--threads",
    type=click.IntRange(min=1),
    metavar="N",
    help="Threads to use; all processors by default.",
)
force = option("--force", is_flag=True, help="Replace an existing output.", group=OUTPUT)
_json = option("--json", is_flag=True, help="Print one JSON object, no text.", group=OUTPUT)
_amounts = (
    option(
        "-q",
        "--quiet",
        is_flag=True,
        help="Print no progress, no remarks: errors and tables only.",
        group=OUTPUT,
    ),
    option(
        "-v",
        "--verbose",
        count=True,
        show_default=False,
        help="Log to stderr what is done; -vv: each tensor.",
        group=OUTPUT,
    ),
)
as_json = together(_json, *_amounts)
all_forms = together(
    _json,
    option("--csv", is_flag=True, help="Print comma-separated values.", group=OUTPUT),
    option("--markdown", is_flag=True, help="Print the table in Markdown.", group=OUTPUT),
    *_amounts,
)
