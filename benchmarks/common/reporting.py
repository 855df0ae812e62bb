"""Limits, and how a benchmark shows its tables: in a terminal, in Markdown, in JSON."""

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console
from rich.table import Table

ABSENT = "-"
WIDTH_WITHOUT_TERMINAL = 110

# Options that all benchmarks have.
JsonPath: TypeAlias = Annotated[
    Path | None, typer.Option("--json", help="Write everything measured to this file.")
]
Markdown: TypeAlias = Annotated[
    bool, typer.Option("--markdown", help="Print the README's tables in Markdown instead.")
]


@dataclass(frozen=True)
class Sheet:
    """A table before it is drawn."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """Return the table in Markdown, figures to the right."""
        marks = ("---", *("---:" for _ in self.columns[1:]))
        body = "\n".join(f"| {' | '.join(line)} |" for line in (self.columns, marks, *self.rows))
        return f"{self.title}\n\n{body}\n"

    def rich(self) -> Table:
        """Return the table for a terminal."""
        table = Table(title=self.title, title_justify="left")
        for index, column in enumerate(self.columns):
            table.add_column(column, justify="right" if index else "left")
        for row in self.rows:
            table.add_row(*row)
        return table


@dataclass(frozen=True)
class Limit:
    """A figure, and what it may be at most or must be at least; a figure of NaN meets nothing."""

    what: str
    measured: float
    limit: float
    at_most: bool = True

    @property
    def met(self) -> bool:
        """Tell whether the figure keeps the limit."""
        return self.measured <= self.limit if self.at_most else self.measured >= self.limit


@dataclass
class Found:
    """What was measured."""

    sheets: list[Sheet] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)
    tables: dict[str, list[Any]] = field(default_factory=dict)


def limit_sheet(limits: Sequence[Limit]) -> Sheet:
    """Tabulate limits and whether they are met."""
    rows = tuple(
        (
            limit.what,
            f"{'≤' if limit.at_most else '≥'} {limit.limit:g}",
            number(limit.measured, 4),
            "yes" if limit.met else "NO",
        )
        for limit in limits
    )
    return Sheet("Limits", ("quantity", "limit", "measured", "met"), rows)


def number(value: float | None, digits: int = 2) -> str:
    """Write a figure; a dash for none."""
    return ABSENT if value is None or math.isnan(value) else f"{value:.{digits}f}"


def show(
    sheets: Sequence[Sheet],
    limits: Sequence[Limit],
    about: Mapping[str, str],
    *,
    markdown: bool,
) -> None:
    """Print tables, then limits, then what the figures were taken on."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL)
    for sheet in (*sheets, limit_sheet(limits)):
        if not sheet.rows:
            continue
        if markdown:
            print(sheet.markdown())
        else:
            console.print(sheet.rich())
    for key, value in about.items():
        print(f"- {key}: {value}" if markdown else f"{key}: {value}")


def write_json(
    path: Path,
    tables: Mapping[str, Iterable[Any]],
    limits: Sequence[Limit],
    about: Mapping[str, str],
) -> None:
    """Write everything measured: rows, which are dataclasses, by table."""
    content = {
        "about": dict(about),
        **{name: [asdict(row) for row in rows] for name, rows in tables.items()},
        "limits": [asdict(limit) | {"met": limit.met} for limit in limits],
    }
    path.write_text(json.dumps(content, indent=1))
