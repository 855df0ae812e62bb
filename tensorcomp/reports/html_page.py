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
from operator import itemgetter
from string import Template
from typing import Any
from xml.etree.ElementTree import Element, tostring

from tensorcomp._formatting import escaped, printable
from tensorcomp._tables import Column, Table
from tensorcomp.reports.report import Plot, Report, Section, natural, pairs_table
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
    title, listed = title or report.kind, pairs_table(("Setting", "Value"), settings.items())
    ending = _section("settings", Section("Settings and versions", listed, note="As given"))
    if command:
        copy = element("button", "Copy", type="button", classes="copy", hidden="")
        ending.insert(1, element("div", element("code", escaped(command)), copy, classes="command"))
    lines = report.legend if report.table.rows else [f"There are no {report.nouns} to show."]
    legend = (element("p", _one_line(line), classes="note") for line in lines)
    sections = (_section(f"section{n}", section) for n, section in enumerate(report.sections))
    return Template(page).substitute(
        title=html.escape(_one_line(title)),
        nouns=report.nouns,
        version=settings.get("tensorcomp", ""),
        header=_html(_header(report, title, settings.get("Date", ""))),
        overview=_html(*sections),
        legend=_html(*legend),
        settings=_html(ending),
        data=_data(report.table, report.nouns),
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
    )


def _html(*trees: Element) -> str:
    return "\n".join(tostring(tree, "unicode", method="html") for tree in trees)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _one_line(text: str) -> str:
    return escaped(" ".join(text.split()))


def _header(report: Report, title: str, date: str) -> Element:
    figures = (
        element("div", element("dt", name), element("dd", value), element("dd", more))
        for name, value, more in report.figures
    )
    about = element("p", f"{report.kind} · {date}", classes="muted")
    made = element("header", element("h1", _one_line(title)), about)
    made.append(element("dl", *figures, classes="figures"))
    if report.notes:
        notes = (element("li", _one_line(note)) for note in report.notes)
        made.append(element("ul", *notes, classes="notes note"))
    return made


def _section(name: str, section: Section | Plot) -> Element:
    if isinstance(section, Section):
        content = element("div", _table(section), classes="wide", tabindex="0", role="region")
        content.set("aria-labelledby", name)
    else:
        content = plot_figure(section, name)
    heading = element("h2", section.title, id=name)
    return element("section", heading, content, aria_labelledby=name)


def _table(section: Section) -> Element:
    """Return a table, with bars of some numbers of each row."""
    table, bars = section.table, section.bars
    head, *texts = table.texts(table.shown())
    lines = [_row(table.shown(), head, "col")]
    longest = max((max(bars(row)) for row in table.rows), default=0) or 1 if bars else 1
    for row, cells in zip(table.rows, texts, strict=False):  # without the total
        lines.append(_row(table.shown(), cells, "row"))
        if bars:
            lines[-1].insert(1, element("td", _bars(bars(row), longest), classes="bar"))
    if bars:
        lines[0].insert(1, element("td", classes="bar"))
    caption = element("caption", section.note)
    return element("table", caption, element("thead", lines[0]), element("tbody", *lines[1:]))


def _row(columns: Sequence[Column], texts: Sequence[str], scope: str) -> Element:
    """Return a row of headings, or one that begins with a heading."""
    line = element("tr")
    for column, text in zip(columns, texts, strict=True):
        heading = {"scope": scope} if scope == "col" or not len(line) else {}
        left = "left" if column.left else ""
        line.append(element("th" if heading else "td", _one_line(text), classes=left, **heading))
    return line


def _bars(values: Sequence[float], longest: float) -> Element:
    """Return bars from one edge, the shortest in front; the numbers stand in the same row."""
    lengths = zip(values, ("before", "after")[-len(values) :], strict=True)
    bars = (
        element("rect", width=f"{100 * value / longest:.2f}", height="10", classes=kind)
        for value, kind in sorted(lengths, key=itemgetter(0), reverse=True)
    )
    svg = element("svg", *bars, viewBox="0 0 100 10", preserveAspectRatio="none")
    svg.set("aria-hidden", "true")
    return svg


def _data(table: Table, nouns: str) -> str:
    """Return all rows as JSON that holds no mark of HTML."""
    columns = table.shown()
    total = table.texts(columns)[-1] if table.total and table.rows else None
    value = {
        "nouns": nouns,
        "rows": len(table.rows),
        "total": total and [_one_line(text) for text in total],
        "columns": [_column(column, table.rows) for column in columns],
    }
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def _column(column: Column, rows: Sequence[Any]) -> dict[str, Any]:
    """Return a column's distinct texts in their order, and the place of each row's among them."""
    texts: list[str | None] = []
    keys: dict[str, tuple[Any, ...]] = {}
    for value in map(column.value, rows):
        known = value is not None and value == value  # not NaN
        texts.append(printable(_one_line(column.cell(value))) if known else None)
        key = (1, natural(printable(value))) if isinstance(value, str) else (0, value)
        if texts[-1] is not None:
            keys[texts[-1]] = min(keys.get(texts[-1], key), key)
    places = {text: place for place, text in enumerate(sorted(keys, key=keys.__getitem__))}
    return {
        **{"title": column.title, "left": column.left, "none": column.none},
        **{"texts": list(places), "places": [places.get(text or "", -1) for text in texts]},
    }
