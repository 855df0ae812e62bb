"""Arguments and options that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Verb = TypeVar("Verb", bound=Callable[..., Any])


def path(text: str) -> Path:
    """Take a path, but not an empty one, which `Path` takes for the current folder."""
    if not text:
        raise click.BadParameter("the path is empty")
    return Path(text)


def together(*options: Callable[[Verb], Verb]) -> Callable[[Verb], Verb]:
    """Return one decorator for several options, which help shows in this order."""

    def decorate(verb: Verb) -> Verb:
        for option in reversed(options):
            verb = option(verb)
        return verb

    return decorate


def output(
    metavar: str = "OUT", text: str = "Where to write.", *, required: bool = False
) -> Callable[[Verb], Verb]:
    """Return the option ``-o``."""
    return click.option(
        "-o", "--output", "out", type=path, metavar=metavar, help=text, required=required
    )


source = click.argument("source", type=path, metavar="INPUT", help="A checkpoint file or a folder.")
threads = click.option(
    "--threads",
    type=click.IntRange(min=1),
    metavar="N",
    help="Threads to use; all processors by default.",
)
force = click.option("--force", is_flag=True, help="Replace an existing output.")
json = click.option("--json", is_flag=True, help="Print one JSON object on stdout, no text.")
forms = together(
    json,
    click.option("--csv", is_flag=True, help="Print comma-separated values instead of a table."),
    click.option("--markdown", is_flag=True, help="Print the table in Markdown."),
)


def refuse_two_forms(*, json: bool, csv: bool, markdown: bool) -> None:
    """Refuse what asks for more than one form of the same table."""
    if json + csv + markdown > 1:
        raise click.BadParameter("--json, --csv and --markdown exclude each other")
