"""Tables, limits and what figures were taken on: in a terminal, in Markdown, in JSON."""

import json
import math
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, NoReturn, Self, TypeAlias

import typer

from benchmarks.common.machine import described
from tensorcomp._tables import Column, Table

ABSENT = "-"
WIDTH_WITHOUT_TERMINAL = 110

# Options that all benchmarks have.
JsonPath: TypeAlias = Annotated[
    Path | None, typer.Option("--json", help="Write everything measured to this file.")
]
Markdown: TypeAlias = Annotated[
    bool, typer.Option("--markdown", help="Print the tables of RESULTS.md instead.")
]


Columns: TypeAlias = Mapping[str, Callable[[Any], str]]  # titles, and the text of a row's cell


@dataclass(frozen=True)
class Sheet:
    """A table of texts under a title."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, title: str, rows: Iterable[Any], columns: Columns) -> Self:
        """Tabulate rows by columns."""
        cells = tuple(tuple(cell(row) for cell in columns.values()) for row in rows)
        return cls(title, tuple(columns), cells)

    @classmethod
    def pivot(cls, title: str, corner: str, cells: Mapping[tuple[str, str], str]) -> Self:
        """Tabulate cells by the names of their row and column, both in order of appearance."""
        across = dict.fromkeys(column for _, column in cells)
        rows = tuple(
            (name, *(cells.get((name, column), ABSENT) for column in across))
            for name in dict.fromkeys(name for name, _ in cells)
        )
        return cls(title, (corner, *across), rows)

    def table(self) -> Table:
        """Return what draws the table: the first column on the left, figures to the right."""
        columns = [
            Column(title, "", itemgetter(index), left=not index)
            for index, title in enumerate(self.columns)
        ]
        return Table(columns, self.rows)


@dataclass(frozen=True)
class Limit:
    """A figure, and what it may be at most or must be at least; a figure of NaN meets nothing."""

    what: str
    measured: float
    limit: float
    at_most: bool = True

    @property
    def met(self) -> bool:
        """Return whether the figure keeps the limit."""
        return self.measured <= self.limit if self.at_most else self.measured >= self.limit


@dataclass
class Found:
    """Measurements: tables to show, limits, and rows, which are dataclasses, by name."""

    sheets: list[Sheet] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)
    rows: dict[str, Any] = field(default_factory=dict)


def limit_sheet(limits: Sequence[Limit]) -> Sheet:
    """Tabulate limits and whether they are met."""
    columns: Columns = {
        "quantity": lambda limit: limit.what,
        "limit": lambda limit: f"{'≤' if limit.at_most else '≥'} {limit.limit:g}",
        "measured": lambda limit: number(limit.measured, 4),
        "met": lambda limit: "yes" if limit.met else "NO",
    }
    return Sheet.of("Limits", limits, columns)


def number(value: float | None, digits: int = 2) -> str:
    """Write a figure; a dash for none."""
    return ABSENT if value is None or math.isnan(value) else f"{value:.{digits}f}"


def spread(mean: float, deviation: float) -> str:
    """Write a mean and its deviation."""
    return f"{mean:.2f} ± {deviation:.2f}"


def note(text: str) -> None:
    """Say on stderr what is going on."""
    typer.echo(text, err=True)


def report(
    found: Found,
    packages: Iterable[str],
    about: Mapping[str, str] | None = None,
    *,
    markdown: bool,
    json_path: Path | None,
) -> None:
    """Print tables, limits and what they were taken on, and write all that was measured.

    Parameters
    ----------
    found : Found
    packages : iterable of str
        Whose versions matter.
    about : mapping of str to str, optional
        What else to say of the figures.
    markdown : bool
        Print the tables in Markdown, without the limits.
    json_path : Path or None
        Where everything is written.
    """
    conditions = described(packages) | dict(about or {})
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL
    for sheet in found.sheets if markdown else (*found.sheets, limit_sheet(found.limits)):
        if sheet.rows:
            lines = sheet.table().markdown() if markdown else sheet.table().lines(width)
            print(sheet.title, "", *lines, "", sep="\n")
    for key, value in conditions.items():
        print(f"- {key}: {value}" if markdown else f"{key}: {value}")
    if json_path is not None:
        content = {
            "about": conditions,
            **{name: [asdict(row) for row in rows] for name, rows in found.rows.items()},
            "limits": [asdict(limit) | {"met": limit.met} for limit in found.limits],
        }
        json_path.write_text(json.dumps(content, indent=1))


def end(
    found: Found,
    packages: Iterable[str],
    about: Mapping[str, str] | None = None,
    *,
    markdown: bool,
    json_path: Path | None,
) -> NoReturn:
    """Report, and end with status 1 if a limit is not met, but for the tables of RESULTS.md."""
    report(found, packages, about, markdown=markdown, json_path=json_path)
    sys.exit(not markdown and not all(limit.met for limit in found.limits))
