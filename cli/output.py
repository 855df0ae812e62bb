"""Print what verbs found, in every form: text, JSON, comma-separated values, Markdown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .signals import READER_GONE, Stopped

if TYPE_CHECKING:
    from tensorcomp._tables import Table

FORMS = ("json", "csv", "markdown")


class Result(NamedTuple):
    """What a verb found.

    Parameters
    ----------
    json : callable
        Returns the object for programs, or its text.
    table : Table, optional
    notes : sequence of str, optional
        Lines about the table, in text and in Markdown.
    summary : sequence of str, optional
        Lines that end the text.
    failure : Exception, optional
        Raised once all is printed.
    """

    json: Callable[[], dict[str, Any] | str]
    table: Table | None = None
    notes: Sequence[str] = ()
    summary: Sequence[str] = ()
    failure: Exception | None = None


def print_result(result: Result, form: str, *, quiet: bool) -> None:
    """Print a result in one of `FORMS`, or as text.

    A quiet text is the table alone, or nothing where there is none.
    """
    if form == "json":
        _print_lines(_json_lines(result.json()))
    elif form == "csv" and result.table is not None:
        _print_lines(result.table.csv())
    elif form == "markdown" and result.table is not None:
        notes = [f"- {line}" for line in result.notes]
        _print_lines([*result.table.markdown(), *([""] if notes else []), *notes])
    else:
        table = [] if result.table is None else result.table.lines(stdout_width())
        below = [] if quiet else [*result.notes, *result.summary]
        _print_lines([*table, *([""] if table and below else []), *below])
    if result.failure is not None:
        raise result.failure


def stdout_width() -> int | None:
    """Return the columns of the terminal that stdout is; None if it is none."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    import shutil

    return shutil.get_terminal_size().columns


def _json_lines(value: dict[str, Any] | str) -> list[str]:
    """Return JSON in ASCII, so that it is the same in every locale."""
    if isinstance(value, str):
        return value.splitlines()
    import json

    return [json.dumps(value, allow_nan=False)]


def _print_lines(lines: Iterable[str]) -> None:
    """Print lines; end quietly if whoever read them has gone, as ``head`` does."""
    try:
        for line in lines:
            print(line)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        raise Stopped(READER_GONE, "") from None
    except OSError as error:
        error.filename = "standard output"
        raise
