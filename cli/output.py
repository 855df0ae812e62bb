"""What verbs print on stdout: lines for people, or one JSON object."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from .exits import READER_GONE, Stopped


def show(lines: Iterable[str]) -> None:
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


def show_text(text: str) -> None:
    """Print a text of several lines."""
    show(text.splitlines())


def show_json(value: dict[str, Any]) -> None:
    """Print one JSON object, in ASCII, so that it is the same in every locale."""
    show([json.dumps(value, allow_nan=False)])


def stdout_width() -> int | None:
    """Return the columns of the terminal that stdout is; None if it is none."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    import shutil

    return shutil.get_terminal_size().columns
