"""Draw rate against error, or error by tensor, as SVG."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias
from xml.etree.ElementTree import Element

from tensorcomp._formatting import printable
from tensorcomp.reports.report import Plot, Series
from tensorcomp.reports.trees import element

_WIDTH, _HEIGHT = 640, 340  # units, as all that follows
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 10, 10, 46
_COLOURS = 6
_MOST_TICKS = 8
_LEAST_X, _LEAST_Y = 1.0, 6.0  # of what axes show: a bit and its decibels
_Span: TypeAlias = "tuple[float, float]"
_Place: TypeAlias = "Callable[[float, float], tuple[float, float]]"


def plot_figure(plot: Plot, name: str) -> Element:
    """Return a figure: the plot, its legend, and room for the name of a point."""
    points = [point for one in plot.series if one.rows for point in one.points]
    xs, ys = ([point[axis] for point in points] for axis in (0, 1))
    (left, right), (low, high) = across, up = _range(xs, _LEAST_X), _range(ys, _LEAST_Y)

    def place(x: float, y: float) -> tuple[float, float]:
        along, down = (x - left) / (right - left), (high - y) / (high - low)
        width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
        return _LEFT + width * along, _TOP + height * down

    drawn, legend, colours = list(_axes(plot, across, up, place)), [], itertools.count()
    for one in plot.series:
        colour = f"c{next(colours) % _COLOURS}" if one.rows else "limit"
        inside = [at for at in one.points if left <= at[0] <= right and low <= at[1] <= high]
        drawn += _paths(one, [place(*at) for at in inside], colour)
        if one.rows:
            drawn[-1].set("data-rows", " ".join(map(str, one.rows)))
        sample = _paths(one, [(4, 5), (16, 5)], colour)
        swatch = element("svg", *sample, viewBox="0 0 20 10", classes="lines", aria_hidden="true")
        legend.append(element("li", swatch, element("span", printable(one.label))))
    said = (
        f"{len(points):,} points: {plot.x} from {min(xs):.3g} to {max(xs):.3g}, {plot.y} from "
        f"{min(ys):.3g} to {max(ys):.3g}."
    )
    title = element("title", plot.title, id=f"{name}-title")
    parts = [title, element("desc", said, id=f"{name}-desc"), *drawn]
    parts.append(element("circle", r="6", classes="ring", visibility="hidden"))
    named = f"{name}-title {name}-desc"
    box, classes = f"0 0 {_WIDTH} {_HEIGHT}", "plot lines"
    svg = element("svg", *parts, classes=classes, role="img", viewBox=box, aria_labelledby=named)
    note = f"{said} {plot.note} All numbers are in the table below."
    listed = element("ul", *legend, classes="legend")
    return element("figure", svg, element("output"), listed, element("p", note, classes="note"))


def _range(values: Sequence[float], least: float) -> _Span:
    """Return what an axis shows: the values, and some room; from 0 if they are near to it."""
    span = max(values) - min(values)
    room = max(0.08 * span, (least - span) / 2)
    low = min(values) - room
    return (0.0 if min(values) >= 0 and low < max(values) / 4 else low), max(values) + room


def _axes(plot: Plot, across: _Span, up: _Span, place: _Place) -> Iterator[Element]:
    """Yield lines and numbers along both axes, and what they are."""
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    for x in _ticks(*across):
        at, _ = place(x, up[0])
        yield element("path", d=f"M{at:.1f} {_TOP}V{bottom}", classes="grid")
        yield _text(f"{x:g}", at, bottom + 18)
    for y in _ticks(*up):
        _, at = place(across[0], y)
        yield element("path", d=f"M{_LEFT} {at:.1f}H{right}", classes="grid")
        yield _text(f"{y:g}", _LEFT - 8, at + 4, "end")
    yield _text(plot.x, (_LEFT + right) / 2, _HEIGHT - 6)
    label = _text(plot.y, -(_TOP + bottom) / 2, 13)
    label.set("transform", "rotate(-90)")
    yield label


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers between two."""
    step = 10.0 ** math.floor(math.log10((high - low) / _MOST_TICKS))
    step *= next(n for n in (1, 2, 5, 10) if (high - low) / (n * step) <= _MOST_TICKS)
    return [n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _paths(one: Series, places: Sequence[tuple[float, float]], colour: str) -> list[Element]:
    """Return a line, dots, or both."""
    texts, paths = [f"{x:.1f} {y:.1f}" for x, y in places], []
    if places and (one.joined or not one.rows):
        paths.append(element("path", d="M" + "L".join(texts), classes=colour))
    if one.rows:
        dots = "".join(f"M{text}h0" for text in texts)
        paths.append(element("path", d=dots, classes=f"{colour} points"))
    return paths


def _text(text: str, x: float, y: float, anchor: str = "middle") -> Element:
    return element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)
