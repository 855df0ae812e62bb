"""Rate against signal-to-noise ratio, drawn by matplotlib."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tensorcomp.errors import CheckpointError
from tensorcomp.reports.benchmark import Benchmark, StrategyRow
from tensorcomp.reports.limits import FORMULA
from tensorcomp.reports.text import escaped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

PLOT_FORMATS = ("png", "svg", "pdf")
_SIZE = (10.5, 7.0)  # inches
_DPI = 150
_MARKERS = "osD^vPX<>"
# Colours that the colour-blind can tell apart (Okabe & Ito 2008), without yellow and black.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_PEER, _POINT, _LIMIT = "#777777", "#333333", "#000000"
_LONGEST_NAME = 60
# Where a label may stand beside its point, in points: to the right and below, as R(D) is above.
_PLACES = [
    (distance * x, distance * y, side)
    for distance in (6, 12, 18, 26, 36, 48)
    for x, y, side in ((1, -0.6, "left"), (1, -1.6, "left"), (1, 0.2, "left"), (-1, -1.4, "right"))
]


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

    with matplotlib.style.context("default"):  # whatever the user's own settings are
        figure = _figure(found)
        figure.savefig(file, format=kind, metadata=_METADATA[kind])


def _figure(found: Benchmark) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, dpi=_DPI)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.065, 0.14, 0.915, 0.805))
    rows = [row for row in found.rows if not row.problem]
    lossy = [row for row in rows if row.snr_db is not None and row.snr_db > -math.inf]
    families = _families(lossy)
    lines = {name: rows for name, rows in families.items() if len(rows) > 1}
    widest = max((row.bits for rows in lines.values() for row in rows), default=0.0)
    most_bits = 1.06 * (widest or max((row.bits for row in lossy), default=8.0))
    shown = [row for row in lossy if row.bits <= most_bits]
    points = [rows[0] for rows in families.values() if len(rows) == 1 and rows[0] in shown]

    _draw_limit(axes, found, most_bits)
    _draw_lines(axes, lines)
    for row in points:
        colour, marker = (_PEER, "s") if row.peer else (_POINT, "o")
        axes.plot(row.bits, row.snr_db or 0.0, marker, color=colour, markersize=5, zorder=4)
    axes.set_xlim(0, most_bits)
    axes.set_ylim(0, 1.06 * max((row.snr_db or 0.0 for row in shown), default=50.0))
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
    _label_points(axes, points, shown, lines)
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


def _draw_limit(axes: Axes, found: Benchmark, most_bits: float) -> None:
    snrs = [step / 4 for step in range(int(4 * 6.3 * most_bits) + 4)]
    rates = [found.limit.rate(snr) for snr in snrs]
    axes.plot(rates, snrs, color=_LIMIT, linewidth=1.4, label="R(D), Gaussian tensors", zorder=2)


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
    formula = f"{FORMULA}, for tensors of nᵢ Gaussian weights of variance σᵢ²."
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
        axes.text(0.985, 0.03, "\n".join(lines), fontsize=8, color=_POINT, **place)


def _literal(text: str) -> str:
    """Return text that matplotlib does not take for a formula."""
    return escaped(text).replace("$", r"\$")


def _label_points(
    axes: Axes,
    points: Sequence[StrategyRow],
    shown: Sequence[StrategyRow],
    lines: dict[str, list[StrategyRow]],
) -> None:
    """Label single strategies, each where it hides least of points, labels and lines."""
    from matplotlib.transforms import Bbox

    taken = [(text.get_window_extent(), 5.0) for text in axes.texts]
    for row in shown:
        x, y = axes.transData.transform((row.bits, row.snr_db or 0.0))
        taken.append((Bbox.from_extents(x - 6, y - 6, x + 6, y + 6), 2.0))
    for x, y in _along(lines.values()):
        x, y = axes.transData.transform((x, y))
        taken.append((Bbox.from_extents(x - 1, y - 1, x + 1, y + 1), 0.1))
    for row in sorted(points, key=lambda row: -row.bits):
        best: tuple[float, Annotation, Bbox] | None = None
        for number, place in enumerate(_PLACES):
            label = _annotate(axes, row, place)
            box = label.get_window_extent().padded(4)
            hidden = 0.02 * number + sum(cost for other, cost in taken if box.overlaps(other))
            if not (axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1 and axes.bbox.y0 <= box.y0):
                hidden += 9.0
            if best is None or hidden < best[0]:
                best = hidden, label, box
            label.remove()
        assert best is not None
        axes.add_artist(best[1])
        taken.append((best[2], 5.0))


def _along(lines: Iterable[Sequence[StrategyRow]]) -> Iterator[tuple[float, float]]:
    """Yield points of lines, close to each other."""
    for rows in lines:
        for a, b in pairwise(rows):
            for part in range(50):
                share = part / 50
                yield (
                    a.bits + share * (b.bits - a.bits),
                    (1 - share) * (a.snr_db or 0.0) + share * (b.snr_db or 0.0),
                )


def _annotate(axes: Axes, row: StrategyRow, place: tuple[float, float, str]) -> Annotation:
    from matplotlib.patheffects import withStroke

    x, y, side = place
    far = math.hypot(x, y) > 14
    halo = withStroke(linewidth=2, foreground="white")
    return axes.annotate(
        _literal(row.label),
        (row.bits, row.snr_db or 0.0),
        xytext=(x, y),
        textcoords="offset points",
        ha=side,
        va="center",
        fontsize=8,
        color=_PEER if row.peer else _POINT,
        arrowprops={"arrowstyle": "-", "color": "#aaaaaa", "linewidth": 0.6} if far else None,
        path_effects=[halo],
        zorder=5,
    )
