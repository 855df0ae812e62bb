"""Hold what a report says of a result, whatever it is written as."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from tensorcomp._formatting import bits_text, bytes_text, printable, ratio_text
from tensorcomp._tables import Column, Table

_MOST = 32  # layers that are listed
_LAYER = re.compile(r"((?:.*?[./])??)(\d{1,9})(?=[./])")


class Series(NamedTuple):
    """Points of a plot that belong together."""

    label: str
    points: Sequence[tuple[float, float]]
    rows: Sequence[int] = ()  # of the report's table, that the points are; empty for a limit
    joined: bool = False  # whether by a line


class Plot(NamedTuple):
    """A plot of rows of the report's table, and what its axes are."""

    title: str
    x: str
    y: str
    series: Sequence[Series]
    note: str = ""


class Section(NamedTuple):
    """A table with bars for some of its numbers."""

    title: str
    table: Table
    bars: Callable[[Any], Sequence[float]] | None = None  # of a row, from the longest
    note: str = ""  # its caption


class Report(NamedTuple):
    """Hold what is said of a result."""

    kind: str  # of work
    figures: Sequence[tuple[str, str, str]]  # titles, values, and what there is to add
    table: Table
    nouns: str = "tensors"  # what the rows of the table are
    notes: Sequence[str] = ()
    legend: Sequence[str] = ()  # of the table's columns
    sections: Sequence[Section | Plot] = ()
    stored: Path | None = None  # a compressed file or folder


class Share(NamedTuple):
    """Bytes of some tensors before and after, or only before."""

    label: str
    before: int
    after: int
    weights: int
    tensors: int = 1


def shares_section(
    title: str, shares: Iterable[Share], names: Sequence[str] = ("Before", "After")
) -> Section:
    """Return a table of shares, those of one label together.

    `names` are those of the sizes; with one of them there is nothing after.
    """
    groups: dict[str, Share] = {}
    for one in shares:
        before = groups.get(one.label, Share(one.label, 0, 0, 0, 0))
        groups[one.label] = Share(one.label, *map(sum, zip(before[1:], one[1:], strict=True)))
    rows = [groups[label] for label in sorted(groups, key=lambda one: natural(printable(one)))]
    head, both = title.rpartition(" ")[2].capitalize(), len(names) > 1
    columns = [
        Column(head, "", lambda row: row.label, printable, left=True),
        Column("Tensors", "", lambda row: row.tensors, "{:,}".format),
        Column(names[0], "", lambda row: row.before, bytes_text),
        Column(names[-1], "", lambda row: row.after, bytes_text),
        Column("Ratio", "", lambda row: row.before / row.after if row.after else None, ratio_text),
        Column("Bits", "", _bits, bits_text),
    ]
    shown = columns if both else [*columns[:3], columns[5]]
    note = (
        f"Bars: {names[0].lower()} in grey, {names[-1].lower()} in blue" if both else "Bars: bytes"
    )
    return Section(title, Table(shown, rows), lambda row: row[1 : 2 + both], note)


def layers(shares: Iterable[Share]) -> list[Share]:
    """Return shares with their layers as labels: few enough to be listed.

    Of ``model.layers.7.mlp.up.weight`` that is ``model.layers.7``; many layers are folded to
    ``model.layers.4–7``, and of many without numbers all but the largest become one.
    """
    found = [(_LAYER.match(one.label), one) for one in shares]
    stems = {(match[1], int(match[2])) for match, _ in found if match}
    run = math.ceil(len(stems) / (_MOST - 8)) if len(stems) > _MOST else 1
    last = dict(sorted(stems))

    def label(match: re.Match[str] | None, name: str) -> str:
        if match is None:
            return re.sub(r"[./][^./]*$", "", name)
        first = int(match[2]) // run * run
        end = min(first + run - 1, last[match[1]])
        return f"{match[1]}{first}" + (f"–{end}" if end > first else "")

    labelled = [one._replace(label=label(match, one.label)) for match, one in found]
    sizes: dict[str, int] = {}
    for one in labelled:
        sizes[one.label] = sizes.get(one.label, 0) + one.before
    listed = set(sorted(sizes, key=lambda name: -sizes[name])[: _MOST - (len(sizes) > _MOST)])
    return [one if one.label in listed else one._replace(label="others") for one in labelled]


def pairs_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table of texts."""
    columns = (Column(title, "", itemgetter(n), left=True) for n, title in enumerate(titles))
    return Table(list(columns), list(rows))


def natural(text: str) -> tuple[str | int, ...]:
    """Return a key by which numbers in names sort as numbers.

    Examples
    --------
    >>> sorted(["layers.10", "layers.9"], key=natural)
    ['layers.9', 'layers.10']
    """
    return tuple(int(part) if n % 2 else part for n, part in enumerate(re.split(r"(\d+)", text)))


def _bits(row: Share) -> float | None:
    return 8 * row.after / row.weights if row.weights else None
