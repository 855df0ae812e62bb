"""Arguments and options that several verbs share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Optional

import typer


class Effort(StrEnum):
    """What size is worth in time."""

    FAST = "fast"
    BALANCED = "balanced"
    MAX = "max"


def path(text: str) -> Path:
    """Take a path, but not an empty one, which `Path` takes for the current folder."""
    if not text:
        raise typer.BadParameter("the path is empty")
    return Path(text)


Input = Annotated[
    Path, typer.Argument(parser=path, metavar="INPUT", help="A checkpoint file or a folder.")
]
Output = Annotated[
    Optional[Path],  # noqa: UP045 - typer reads it at run time
    typer.Option("-o", "--output", parser=path, metavar="OUT", help="Where to write."),
]
Threads = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(min=1, metavar="N", help="Threads to use; all processors by default."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing output.")]
Csv = Annotated[
    bool, typer.Option("--csv", help="Print comma-separated values instead of a table.")
]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print the table in Markdown.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, no text.")]
