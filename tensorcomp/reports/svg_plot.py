"""Draw rate against error, or error by tensor, as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
_Place: TypeAlias = "Callable[[float, float], tuple[float, float]]"


def plot_figure(plot: Plot, name: str) -> Element:
    """Return a figure: the plot, its legend, and room for the name of a point."""
    points = [point for one in plot.series if one.rows for point in one.points]
    xs, ys = ([point[axis] for point in points] for axis in (0, 1))
    (left, right), (low, high) = across, up = _range(xs, _LEAST_X), _range(ys, _LEAST_Y)

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            _LEFT + (_WIDTH - _LEFT - _RIGHT) * (x - left) / (right - left),
            _TOP + (_HEIGHT - _TOP - _BOTTOM) * (high - y) / (high - low),
        )

    drawn, legend, count = [], [], 0
    for one in plot.series:
        classes = f"c{count % _COLOURS}" if one.rows else "limit"
        count += bool(one.rows)
        inside = [(x, y) for x, y in one.points if left <= x <= right and low <= y <= high]
        drawn += _paths(one._replace(points=inside), classes, place)
        swatch = element("svg", *_swatch(one, classes), viewBox="0 0 20 10", classes="lines")
        swatch.set("aria-hidden", "true")
        legend.append(element("li", swatch, element("span", printable(one.label))))
    said = (
        f"{sum(len(one.rows) for one in plot.series):,} points: {plot.x} from {min(xs):.3g} to "
        f"{max(xs):.3g}, {plot.y} from {min(ys):.3g} to {max(ys):.3g}."
    )
    svg = element(
        "svg",
        element("title", plot.title, id=f"{name}-title"),
        element("desc", said, id=f"{name}-desc"),
        *_axes(plot, across, up, place),
        *drawn,
        element("circle", r="6", classes="ring", visibility="hidden"),
        classes="plot lines",
        role="img",
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
    )
    svg.set("aria-labelledby", f"{name}-title {name}-desc")
    note = f"{said} {plot.note} All numbers are in the table below."
    legends = element("ul", *legend, classes="legend")
    return element("figure", svg, element("output"), legends, element("p", note, classes="note"))


def _range(values: Sequence[float], least: float) -> tuple[float, float]:
    """Return what an axis shows: the values, and some room; from 0 if they are near to it."""
    span = max(values) - min(values)
    room = max(0.08 * span, (least - span) / 2)
    low = min(values) - room
    return (0.0 if min(values) >= 0 and low < max(values) / 4 else low), max(values) + room


def _axes(
    plot: Plot, xs: tuple[float, float], ys: tuple[float, float], place: _Place
) -> list[Element]:
    """Return lines and numbers along both axes, and what they are."""
    drawn = []
    for x in _ticks(*xs):
        (left, bottom), (_, top) = place(x, ys[0]), place(x, ys[1])
        drawn.append(_path([(left, bottom), (left, top)], "grid"))
        drawn.append(_text(left, _HEIGHT - _BOTTOM + 18, f"{x:g}", "middle"))
    for y in _ticks(*ys):
        left, height = place(xs[0], y)
        drawn.append(_path([(left, height), place(xs[1], y)], "grid"))
        drawn.append(_text(_LEFT - 8, height + 4, f"{y:g}", "end"))
    drawn.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 6, plot.x, "middle"))
    label = _text(-(_TOP + _HEIGHT - _BOTTOM) / 2, 13, plot.y, "middle")
    label.set("transform", "rotate(-90)")
    return [*drawn, label]


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers between two."""
    step = 10.0 ** math.floor(math.log10((high - low) / _MOST_TICKS))
    step *= next(n for n in (1, 2, 5, 10) if (high - low) / (n * step) <= _MOST_TICKS)
    return [n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _paths(one: Series, classes: str, place: _Place) -> list[Element]:
    """Return a line, dots, or both; dots know which rows they are."""
    places = [place(*point) for point in one.points]
    lines = [_path(places, classes)] if places and (one.joined or not one.rows) else []
    if not one.rows:
        return lines
    dots = element("path", d="".join(f"M{x:.1f} {y:.1f}h0" for x, y in places))
    dots.set("class", f"{classes} points")
    dots.set("data-rows", " ".join(map(str, one.rows)))
    return [*lines, dots]


def _swatch(one: Series, classes: str) -> list[Element]:
    dot = element("path", d="M10 5h0", classes=f"{classes} points")
    return [_path([(0, 5), (20, 5)], classes)] * (one.joined or not one.rows) + [dot] * bool(
        one.rows
    )


def _path(places: Sequence[tuple[float, float]], classes: str) -> Element:
    return element("path", d="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places), classes=classes)


def _text(x: float, y: float, text: str, anchor: str) -> Element:
    made = element("text", text, x=f"{x:.1f}", y=f"{y:.1f}")
    made.set("text-anchor", anchor)
    return made
