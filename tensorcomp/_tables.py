"""Render a table for a terminal, as Markdown, CSV, JSON or HTML."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby, zip_longest
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from tensorcomp._formatting import escaped, markdown_text

Value: TypeAlias = "str | int | float | None"

_NARROWEST = 20  # columns of a terminal that names keep
_BREAKS = "./_-:, "


class Column(NamedTuple):
    """A column of a table: what it holds for programs, and how people read it."""

    title: str  # for people; empty for a column that only programs get
    key: str  # for programs; empty for a column that only people get
    value: Callable[[Any], Value]  # of a row; None where it has none
    text: Callable[[Any], str] = str  # of a value that is not None; its lines are kept apart
    none: str = "-"  # the text of None
    left: bool = False  # whether texts are aligned on the left
    optional: bool = False  # whether people do not get it where rows have no value, or count 0
    # Where a terminal is too narrow for whole lines:
    spare: int = 0  # columns of the highest number are left out first; never those of 0
    narrow: Callable[[Any], str] | None = None  # the text of a row
    heading: bool = False  # whether its values become headings, above the rows that share them

    def cell(self, value: Value) -> str:
        """Return the text of a value."""
        return self.none if value is None else self.text(value)


class Table(NamedTuple):
    r"""Rows of anything, seen through columns.

    Parameters
    ----------
    columns : sequence of Column
        The first without ``heading`` holds names, which are folded where a terminal is narrow.
    rows : sequence
    total : mapping of str to value, optional
        The last row, by keys or, of columns without key, titles; other cells of it are empty.

    Examples
    --------
    >>> bits = Column("Bits", "bits_per_weight", lambda row: row[1], "{:.2f}".format)
    >>> table = Table([Column("Name", "name", lambda row: row[0], left=True), bits], [("a|b", 4)])
    >>> print(*table.lines(), sep="\n")
    Name  Bits
    a|b   4.00
    >>> print(*table.markdown(), sep="\n")
    | Name | Bits |
    | --- | ---: |
    | a\|b | 4.00 |
    >>> table.csv()
    ['name,bits_per_weight', 'a|b,4']
    >>> table.records()
    [{'name': 'a|b', 'bits_per_weight': 4}]
    """

    columns: Sequence[Column]
    rows: Sequence[Any]
    total: Mapping[str, Value] = MappingProxyType({})

    def lines(self, width: int | None = None) -> list[str]:
        """Return lines for a terminal.

        Parameters
        ----------
        width : int, optional
            Columns to keep within: names are folded, and some columns may be left out. By default
            each row is one line.
        """
        if not self.rows:
            return []
        columns = self.shown()
        lines = in_columns(self.texts(columns), _right(columns))
        if width is None or max(map(cells, lines)) <= width:
            return lines
        heading = next((column for column in columns if column.heading), None)
        others = [column for column in columns if not column.heading]
        columns = [c._replace(value=c.narrow, text=str) if c.narrow else c for c in others]
        for column in sorted(columns, key=lambda column: -column.spare):
            if not column.spare or _least_width(self.texts(columns)) <= width:
                break
            columns.remove(column)
        head, *blocks = _folded(self.texts(columns), width, _right(columns))
        if heading is None:
            return [line for block in (head, *blocks) for line in block]
        names = [heading.value(row) for row in self.rows] + [None] * bool(self.total)
        lines = head
        for name, group in groupby(zip(names, blocks, strict=True), key=lambda pair: pair[0]):
            lines += [] if name is None else ["", heading.cell(name)]
            lines += [line for _, block in group for line in block]
        return lines

    def fits(self, width: int | None) -> bool:
        """Return whether each row is one line of a terminal of so many columns."""
        return width is None or max(map(cells, self.lines()), default=0) <= width

    def markdown(self) -> list[str]:
        """Return the lines of a table in Markdown."""
        columns = self.shown()
        head, *body = [
            [markdown_text(_one_line(cell)) for cell in row] for row in self.texts(columns)
        ]
        rule = ["---" if column.left else "---:" for column in columns]
        return [f"| {' | '.join(row)} |" for row in (head, rule, *body)]

    def csv(self) -> list[str]:
        """Return the lines of comma-separated values (RFC 4180), one a row.

        Numbers are written with all their digits; None is empty, and what cannot be printed is
        escaped.
        """
        import csv
        import io

        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        columns = [column for column in self.columns if column.key]
        rows = [[column.value(row) for column in columns] for row in self.rows]
        if self.total:
            rows.append([self.total.get(column.key) for column in columns])
        writer.writerow([column.key for column in columns])
        for row in rows:
            writer.writerow([escaped(cell) if isinstance(cell, str) else cell for cell in row])
        return file.getvalue().splitlines()

    def records(self) -> list[dict[str, Value]]:
        """Return the rows as JSON values, without the total."""
        columns = [column for column in self.columns if column.key]
        return [
            {column.key: json_value(column.value(row)) for column in columns} for row in self.rows
        ]

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        import html

        columns = self.shown()
        sides = ["left" if column.left else "right" for column in columns]
        tags = ["th", *["td"] * (len(self.rows) + bool(self.total))]
        lines = [
            "".join(
                f'<{tag} style="text-align: {side}">{html.escape(_one_line(cell))}</{tag}>'
                for side, cell in zip(sides, row, strict=True)
            )
            for tag, row in zip(tags, self.texts(columns), strict=True)
        ]
        return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"

    def shown(self) -> list[Column]:
        """Return the columns for people."""
        titled = [column for column in self.columns if column.title]
        return [
            one for one in titled if not one.optional or any(map(_tells, map(one.value, self.rows)))
        ]

    def texts(self, columns: Sequence[Column]) -> list[list[str]]:
        """Return the cells of all rows, the head first."""
        rows = [[column.cell(column.value(row)) for column in columns] for row in self.rows]
        if self.total:
            rows.append([self._total_text(column) for column in columns])
        return [[column.title for column in columns], *rows]

    def _total_text(self, column: Column) -> str:
        key = column.key or column.title
        return column.cell(self.total[key]) if key in self.total else ""


def _tells(value: Value) -> bool:
    """Return whether a value says something; of counts, 0 does not."""
    return isinstance(value, float) or bool(value)


def json_value(value: Value) -> Value:
    """Return a value that JSON has: infinite numbers become text."""
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def cells(text: str) -> int:
    """Return how many terminal columns a line takes."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def fold(text: str, width: int) -> str:
    """Break a long name into lines after dots or the like, later ones indented.

    Parameters
    ----------
    text : str
        One line.
    width : int
        Columns of a line at most, above 2.

    Examples
    --------
    >>> print(fold("encoder.layer.0.attention.weight", 18))
    encoder.layer.0.
      attention.weight
    """
    lines = []
    indent = ""
    while cells(text) > width - len(indent):
        taken, room = 0, width - len(indent)
        while (room := room - _cells(text[taken])) >= 0:
            taken += 1
        taken = max(taken, 1)
        after = 1 + max(text.rfind(mark, 0, taken) for mark in _BREAKS)
        if after > taken // 2:
            taken = after
        lines.append(f"{indent}{text[:taken].rstrip()}")
        text, indent = text[taken:], "  "
    return "\n".join([*lines, indent + text])


def in_columns(rows: Sequence[Sequence[str]], right: Collection[int], gap: int = 2) -> list[str]:
    """Return the lines of aligned columns.

    Parameters
    ----------
    rows : sequence of sequence of str
        The first may be the head. A cell may have several lines.
    right : collection of int
        Columns that are aligned on the right.
    gap : int, optional
        Spaces between columns.
    """
    widths = _widths(rows)
    lines = []
    for row in rows:
        for parts in zip_longest(*(cell.split("\n") for cell in row), fillvalue=""):
            padded = []
            for number, (part, width) in enumerate(zip(parts, widths, strict=True)):
                room = " " * (width - cells(part))
                padded.append(room + part if number in right else part + room)
            lines.append((" " * gap).join(padded).rstrip())
    return lines


def _folded(rows: Sequence[Sequence[str]], width: int, right: Collection[int]) -> list[list[str]]:
    """Return each row's lines, the first column folded to keep within `width`."""
    others = _widths(rows)[1:]
    gap = 2 if sum(others) + 2 * len(others) + 2 * _NARROWEST <= width else 1
    room = max(width - sum(others) - gap * len(others), _NARROWEST)
    folded = [
        ("\n".join(fold(line, room) for line in name.split("\n")), *rest) for name, *rest in rows
    ]
    lines = iter(in_columns(folded, right, gap))
    return [[next(lines) for _ in name.split("\n")] for name, *_ in folded]


def _least_width(rows: Sequence[Sequence[str]]) -> int:
    others = _widths(rows)[1:]
    return sum(others) + len(others) + _NARROWEST


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [
        max(cells(line) for cell in column for line in cell.split("\n"))
        for column in zip(*rows, strict=True)
    ]


def _right(columns: Sequence[Column]) -> set[int]:
    return {number for number, column in enumerate(columns) if not column.left}


def _one_line(cell: str) -> str:
    return escaped(": ".join(line.strip() for line in cell.split("\n")))


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
