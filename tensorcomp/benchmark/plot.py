"""Rate against signal-to-noise ratio, drawn by matplotlib."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from tensorcomp._formatting import escaped
from tensorcomp.benchmark.figures import Benchmark, StrategyRow
from tensorcomp.benchmark.label_places import place_labels
from tensorcomp.errors import CheckpointError
from tensorcomp.metrics.gaussian_limit import FORMULA

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLOT_FORMATS = ("png", "svg", "pdf")
_SIZE = (10.5, 7.0)  # inches
_DPI = 150
_MARKERS = "osD^vPX<>"
# Colours that the colour-blind can tell apart (Okabe & Ito 2008), without yellow and black.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_PEER, _POINT, _LIMIT = "#777777", "#333333", "#000000"
_LONGEST_NAME = 60  # characters
_SMALL = 8.0  # points, of labels
_NEAR = 10.0  # points between a label and its mark that need no line


def check_plot(path: Path) -> None:
    """Require that a plot can be drawn into a file of this name.

    Raises
    ------
    CheckpointError
        If its ending is none of `PLOT_FORMATS`, or matplotlib is missing.
    """
    if path.suffix.lower().removeprefix(".") not in PLOT_FORMATS:
        endings = ", ".join(f".{ending}" for ending in PLOT_FORMATS)
        raise CheckpointError(f"{path}: a plot's name ends in one of {endings}")
    try:
        import matplotlib as _  # noqa: F401
    except ImportError as error:
        raise CheckpointError(
            f"{path}: plots are drawn by matplotlib: pip install 'tensorcomp[plot]'"
        ) from error


def draw_benchmark(found: Benchmark, file: IO[bytes], kind: str) -> None:
    """Draw rate against SNR for all strategies, with R(D), into a file.

    Strategies that differ in rate only are joined by lines. Those that need more bits than the
    widest of these lines, and those that lose nothing, are listed in words.

    Parameters
    ----------
    found : Benchmark
    file : binary file
    kind : str
        One of `PLOT_FORMATS`.
    """
    import matplotlib.style

    own: list[str | dict[str, Any]] = [
        "default",
        {"svg.hashsalt": "tensorcomp"},
    ]  # and none of the user's settings
    with matplotlib.style.context(own):
        figure = _figure(found)
        figure.savefig(file, format=kind, metadata=_METADATA[kind])


def _figure(found: Benchmark) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=_SIZE, dpi=_DPI)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.065, 0.14, 0.915, 0.805))
    rows = [row for row in found.rows if not row.problem]
    lossy = [row for row in rows if row.snr_db is not None and row.snr_db > -math.inf]
    families = _families(lossy)
    lines = {name: rows for name, rows in families.items() if len(rows) > 1}
    widest = max((row.bits for rows in lines.values() for row in rows), default=0.0)
    most_bits = 1.16 * (widest or max((row.bits for row in lossy), default=8.0))
    shown = [row for row in lossy if row.bits <= most_bits]
    points = [rows[0] for rows in families.values() if len(rows) == 1 and rows[0] in shown]

    _draw_limits(axes, found, most_bits)
    _draw_lines(axes, lines)
    for row in points:
        colour, marker = (_PEER, "s") if row.peer else (_POINT, "o")
        axes.plot(row.bits, row.snr_db or 0.0, marker, color=colour, markersize=5, zorder=4)
    axes.set_xlim(0, most_bits)
    axes.set_ylim(
        min((1.1 * (row.snr_db or 0.0) for row in shown if (row.snr_db or 0.0) < 0), default=0.0),
        1.06 * max((row.snr_db or 0.0 for row in shown), default=50.0),
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=16))
    axes.set_xlabel("rate, bits per weight")
    axes.set_ylabel("signal-to-noise ratio, dB")
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", frameon=False, fontsize=9)
    axes.set_title(_title(found), loc="left", fontsize=11)
    figure.text(0.065, 0.015, _caption(found), fontsize=7.5, color="#555555", va="bottom")
    _list_others(axes, [row for row in rows if row not in shown])
    figure.draw_without_rendering()
    _label_points(axes, points, shown, lines.values())
    return figure


# Nothing of the machine or the time, so that equal figures give equal files.
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}


def _families(rows: Sequence[StrategyRow]) -> dict[str, list[StrategyRow]]:
    families: dict[str, list[StrategyRow]] = {}
    for row in sorted(rows, key=lambda row: row.bits):
        families.setdefault(row.family, []).append(row)
    ordered = dict.fromkeys(row.family for row in rows)
    return {family: families[family] for family in ordered}


def _draw_limits(axes: Axes, found: Benchmark, most_bits: float) -> None:
    for limit, style, label in (
        (found.limit, "-", "R(D), Gaussian, a variance of each row × column"),
        (found.tensor_limit, ":", "R(D), Gaussian, one variance of each tensor"),
    ):
        snrs = np.linspace(0, 6.3 * most_bits * 1.5, 300)
        rates = np.array([limit.rate(snr) for snr in snrs])
        inside = rates <= 1.05 * most_bits
        axes.plot(
            rates[inside], snrs[inside], style, color=_LIMIT, linewidth=1.4, label=label, zorder=2
        )


def _draw_lines(axes: Axes, lines: dict[str, list[StrategyRow]]) -> None:
    for number, (family, rows) in enumerate(lines.items()):
        peer = rows[0].peer
        axes.plot(
            [row.bits for row in rows],
            [row.snr_db or 0.0 for row in rows],
            linestyle="--" if peer else "-",
            marker=_MARKERS[number % len(_MARKERS)],
            markersize=5,
            linewidth=1.2,
            color=_PEER if peer else _COLOURS[number % len(_COLOURS)],
            markerfacecolor="white" if peer else None,
            label=_literal(family),
            zorder=3,
        )


def _title(found: Benchmark) -> str:
    name = found.name
    if len(name) > _LONGEST_NAME:
        name = f"{name[: _LONGEST_NAME - 1]}…"
    weights = f"{found.weights / 1e6:.3g} M" if found.weights >= 1e6 else f"{found.weights:,}"
    return f"{_literal(name)}: {weights} weights, rate against error by strategy"


def _caption(found: Benchmark) -> str:
    counted = "Every byte of the tensors is counted"
    if found.limit.other_weights:
        counted += (
            f"; {found.fixed_bits:.2g} bits per weight, in R(D) as well, are for those that always "
            "stay lossless"
        )
    if found.sampled:
        share = f"{found.measured_weights / 1e6:.3g} M"
        counted += f". Reckoned from a sample of {share} weights"
    peers = "Grey: other libraries." if any(row.peer for row in found.rows) else ""
    formula = f"{FORMULA}, for nᵢ weights of variance σᵢ²."
    return f"{formula} {peers}\n{counted}."


def _list_others(axes: Axes, rows: Sequence[StrategyRow]) -> None:
    """List what is not drawn, where no strategy can be: many bits, low ratio."""
    lines = ["Not drawn:"]
    for row in rows:
        error = "exact" if row.exact else f"{row.snr_db:.1f} dB"
        lines.append(_literal(f"{row.label}: {row.bits:.2f} bits, {error}"))
    place: dict[str, Any] = {
        "transform": axes.transAxes,
        "ha": "right",
        "va": "bottom",
        "linespacing": 1.35,
    }
    if rows:
        axes.text(0.985, 0.03, "\n".join(lines), fontsize=_SMALL, color=_POINT, **place)


def _literal(text: str) -> str:
    """Return text that matplotlib does not take for a formula."""
    return escaped(text).replace("$", r"\$")


def _label_points(
    axes: Axes,
    points: Sequence[StrategyRow],
    shown: Sequence[StrategyRow],
    lines: Iterable[Sequence[StrategyRow]],
) -> None:
    """Label single strategies, each where it hides little."""
    places = _pixels(axes, map(_place, points))
    curves = [xy for line in axes.lines[:2] for xy in np.array(line.get_xydata()).tolist()]
    legend = axes.get_legend()
    others = [*axes.texts, *([] if legend is None else [legend])]
    corners = place_labels(
        places,
        np.array([_size_of(axes, row.label) for row in points]).reshape(-1, 2),
        marks=_pixels(axes, map(_place, shown)),
        lines=_pixels(axes, [*_along(lines), *curves]),
        boxes=np.array([other.get_window_extent().extents for other in others]).reshape(-1, 4),
        frame=np.array(axes.bbox.extents),
    )
    for row, offset in zip(points, (corners - places) * 72 / _DPI, strict=True):
        _label(axes, row, offset)


def _place(row: StrategyRow) -> tuple[float, float]:
    return row.bits, row.snr_db or 0.0


def _pixels(axes: Axes, places: Iterable[tuple[float, float]]) -> np.ndarray:
    data = np.array([*places], np.float64).reshape(-1, 2)
    return np.asarray(axes.transData.transform(data))


def _size_of(axes: Axes, label: str) -> tuple[float, float]:
    """Return width and height of a label in pixels."""
    text = axes.text(0, 0, _literal(label), fontsize=_SMALL)
    box = text.get_window_extent()
    text.remove()
    return box.width, box.height


def _along(lines: Iterable[Sequence[StrategyRow]]) -> Iterator[tuple[float, float]]:
    """Yield points of lines, close to each other."""
    for rows in lines:
        for a, b in pairwise(map(_place, rows)):
            for share in np.linspace(0, 1, 50):
                yield a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1])


def _label(axes: Axes, row: StrategyRow, offset: np.ndarray) -> None:
    """Write a label at an offset in points, with a line to its point if that is far."""
    from matplotlib.patheffects import withStroke

    size = np.array(_size_of(axes, row.label)) * 72 / _DPI
    nearest = np.clip(0, offset, offset + size)
    line: dict[str, Any] = {"arrowstyle": "-", "color": "#aaaaaa", "linewidth": 0.6, "shrinkB": 3}
    line["relpos"] = (float((nearest - offset)[0] / size[0]), 0.5)
    axes.annotate(
        _literal(row.label),
        _place(row),
        xytext=(float(offset[0]), float(offset[1])),
        textcoords="offset points",
        ha="left",
        va="bottom",
        fontsize=_SMALL,
        color=_PEER if row.peer else _POINT,
        arrowprops=line if math.hypot(*nearest) > _NEAR else None,
        path_effects=[withStroke(linewidth=2, foreground="white")],
        zorder=5,
    )
