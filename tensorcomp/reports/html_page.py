"""Write a report as one HTML page that needs nothing else.

Elements are made as trees and texts are put into them, so that no name ever becomes markup; the
table of all rows is filled in by a script, from data that are text alone.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from string import Template
from typing import Any
from xml.etree.ElementTree import Element, tostring

from tensorcomp._formatting import escaped, printable
from tensorcomp._tables import Column, Table, Value
from tensorcomp.reports.report import Report, Section, natural
from tensorcomp.reports.svg_plot import plot_figure
from tensorcomp.reports.trees import element


def html_page(report: Report, title: str, command: str, settings: Mapping[str, str]) -> str:
    """Return the text of a page.

    Parameters
    ----------
    report : Report
    title : str
        What the report is about: the name of a file, say.
    command : str
        The command line that made it; empty if there was none.
    settings : mapping of str to str
    """
    files = resources.files(__package__) / "page"
    style, script, page = (
        files.joinpath(f"page.{kind}").read_text("utf-8") for kind in ("css", "js", "html")
    )
    nouns = f"{report.noun[:-1]}ies" if report.noun.endswith("y") else f"{report.noun}s"
    texts = {
        "title": f"{title or report.kind} – tensorcomp",
        "nouns": nouns,
        "hint": "words to look for",
        "footer": f"Made by tensorcomp {settings.get('tensorcomp', '')}; this page loads nothing.",
    }
    trees = {
        "header": [_header(report, title or report.kind, settings)],
        "legend": [element("p", one_line(line), classes="note") for line in report.legend],
        "overview": [_section(n, section) for n, section in enumerate(report.sections)],
        "settings": [_settings(command, settings)],
    }
    return Template(page).substitute(
        {key: html.escape(escaped(text)) for key, text in texts.items()},
        **{key: "\n".join(map(_html, several)) for key, several in trees.items()},
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        data=_data(report.table, nouns),
    )


def _html(tree: Element) -> str:
    return tostring(tree, "unicode", method="html")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _header(report: Report, title: str, settings: Mapping[str, str]) -> Element:
    date = settings.get("Date", "")
    figures = (
        element("div", element("dt", name), element("dd", value), element("dd", more))
        for name, value, more in report.figures
    )
    notes = [element("li", one_line(note)) for note in report.notes]
    return element(
        "header",
        element("h1", one_line(title)),
        element("p", " · ".join(filter(None, (report.kind, date))), classes="muted"),
        element("dl", *figures, classes="figures"),
        *([element("ul", *notes, classes="notes note")] if notes else []),
    )


def one_line(text: str) -> str:
    """Return a text of any length in one line."""
    return escaped(" ".join(text.split()))


def _section(number: int, section: Any) -> Element:
    name = f"section{number}"
    if isinstance(section, Section):
        content = element("div", _table(section), classes="wide", tabindex="0", role="region")
        content.set("aria-labelledby", name)
    else:
        content = plot_figure(section, name)
    heading = element("h2", section.title, id=name)
    return element("section", heading, content, **{"aria-labelledby": name})


def _table(section: Section) -> Element:
    """Return a table, with bars of some numbers of each row."""
    table, bars = section.table, section.bars
    columns = table.shown()
    head, *body = table.texts(columns)
    longest = max((max(bars(row)) for row in table.rows), default=0) if bars else 0
    rows = [element("tr", *_cells(columns, head, "th", scope="col"))]
    if bars:
        rows[0].insert(1, element("td", classes="bar"))
    for texts, row in zip(body, table.rows, strict=False):
        rows.append(element("tr", *_cells(columns, texts, "td")))
        rows[-1][0].tag = "th"
        rows[-1][0].set("scope", "row")
        if bars:
            rows[-1].insert(1, element("td", _bars(bars(row), longest), classes="bar"))
    caption = element("caption", section.note)
    return element("table", caption, element("thead", rows[0]), element("tbody", *rows[1:]))


def _cells(
    columns: Sequence[Column], texts: Sequence[str], tag: str, **attributes: str
) -> list[Element]:
    return [
        element(tag, one_line(text), classes="left" if column.left else "", **attributes)
        for column, text in zip(columns, texts, strict=True)
    ]


def _bars(values: Sequence[float], longest: float) -> Element:
    """Return bars from one edge, the last one in front."""
    bars = [
        element("rect", width=f"{100 * value / (longest or 1):.2f}", height="10")
        for value in values
    ]
    svg = element("svg", *bars, viewBox="0 0 100 10", preserveAspectRatio="none")
    svg.set("aria-hidden", "true")  # the numbers stand in the same row
    return svg


def _settings(command: str, settings: Mapping[str, str]) -> Element:
    parts = [element("h2", "Settings and versions", id="settings")]
    if command:
        copy = element("button", "Copy", type="button", classes="copy", hidden="")
        parts.append(element("div", element("code", escaped(command)), copy, classes="command"))
    pairs = [
        element(tag, one_line(text))
        for pair in settings.items()
        for tag, text in zip(("dt", "dd"), pair, strict=True)
    ]
    parts.append(element("dl", *pairs, classes="settings"))
    return element("section", *parts, **{"aria-labelledby": "settings"})


def _data(table: Table, nouns: str) -> str:
    """Return all rows as JSON that holds no mark of HTML."""
    columns = table.shown()
    total = table.texts(columns)[-1] if table.total and table.rows else None
    value = {
        "nouns": nouns,
        "rows": len(table.rows),
        "total": total and [one_line(text) for text in total],
        "columns": [_column(column, table.rows) for column in columns],
    }
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def _column(column: Column, rows: Sequence[Any]) -> dict[str, Any]:
    """Return a column's distinct texts in their order, and the place of each row's among them."""
    cells = []
    for row in rows:
        value = column.value(row)
        text = printable(one_line(column.cell(value)))
        cells.append(None if _is_none(value) else (_order(value), text))
    places: dict[str, int] = {}
    for _, text in sorted({cell for cell in cells if cell is not None}):
        places.setdefault(text, len(places))
    return {
        "title": column.title,
        "left": column.left,
        "none": column.none,
        "texts": list(places),
        "places": [-1 if cell is None else places[cell[1]] for cell in cells],
    }


def _is_none(value: Value) -> bool:
    return value is None or value != value  # NaN


def _order(value: Value) -> tuple[Any, ...]:
    """Return a key by which numbers come before texts."""
    return (1, natural(printable(value))) if isinstance(value, str) else (0, value)
