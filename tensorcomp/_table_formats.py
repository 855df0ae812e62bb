"""Tables for other programs: Markdown, and comma-separated values."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

from tensorcomp._formatting import escaped

Cell: TypeAlias = "str | int | float | None"


def markdown_lines(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    r"""Return the lines of a table in Markdown; the first row is the head.

    Parameters
    ----------
    rows : sequence of sequence of str
    right : collection of int, optional
        Columns that are aligned on the right.

    Examples
    --------
    >>> print(*markdown_lines([("Name", "Bits"), ("a|b", "4")], right=[1]), sep="\n")
    | Name | Bits |
    | --- | ---: |
    | a\|b | 4 |
    """
    head, *body = [["\\|".join(escaped(cell).split("|")) for cell in row] for row in rows]
    rule = ["---:" if column in right else "---" for column in range(len(head))]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *body)]


def csv_lines(head: Sequence[str], rows: Iterable[Sequence[Cell]]) -> list[str]:
    r"""Return the lines of a table as comma-separated values (RFC 4180), one line a row.

    Parameters
    ----------
    head : sequence of str
    rows : iterable of sequence of str, int, float or None
        Numbers are written with all their digits; None is empty, and what cannot be printed is
        spelled out.

    Examples
    --------
    >>> csv_lines(["name", "bits"], [("a,b", 0.1), ("c\nd", None)])
    ['name,bits', '"a,b",0.1', 'c\\nd,']
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(head)
    for row in rows:
        writer.writerow([escaped(cell) if isinstance(cell, str) else cell for cell in row])
    return file.getvalue().splitlines()
