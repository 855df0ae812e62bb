"""Draw rate against signal-to-noise ratio by matplotlib."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from tensorcomp._formatting import escaped, snr_text
from tensorcomp.benchmark.figures import Benchmark, StrategyRow, millions
from tensorcomp.errors import CheckpointError, needing
from tensorcomp.metrics.gaussian_limit import FORMULA

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Metadata holds nothing of the machine or the time, so that equal figures give equal files.
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}
PLOT_FORMATS = tuple(_METADATA)
_SIZE = (12.0, 7.0)  # inches
_DPI = 150
_MARKERS = "os^vDPXp<>*"
# Colours that the colour-blind can tell apart (Okabe & Ito 2008), without yellow and black.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_GREY = "#555555"
_MAX_NAME = 60  # characters


def check_plot(path: Path) -> None:
    """Require that a plot can be drawn into a file of this name.

    Raises
    ------
    CheckpointError
        If its ending is none of `PLOT_FORMATS`, or matplotlib is missing.
    """
    if path.suffix.lower().removeprefix(".") not in PLOT_FORMATS:
        endings = ", ".join(f".{ending}" for ending in PLOT_FORMATS)
        raise CheckpointError(f"{path}: expected a name that ends in one of {endings}")
    with needing("plot", CheckpointError, f"{path}: plots are drawn by matplotlib"):
        import matplotlib as _  # noqa: F401


def draw_benchmark(found: Benchmark, file: IO[bytes], kind: str) -> None:
    """Draw rate against SNR for all strategies, with R(D), into a file.

    Strategies that differ in rate only are joined by lines. Those that need more bits than the
    widest of these lines, and those that lose nothing, are listed in the legend.

    Parameters
    ----------
    found : Benchmark
    file : binary file
    kind : str
        One of `PLOT_FORMATS`.
    """
    import matplotlib.style

    # None of the user's settings.
    own: list[str | dict[str, Any]] = ["default", {"svg.hashsalt": "tensorcomp"}]
    with matplotlib.style.context(own):
        _figure(found).savefig(file, format=kind, metadata=_METADATA[kind])


def _figure(found: Benchmark) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=_SIZE, dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    with_loss = any(row.loss for row in found.rows)
    axes, *others = figure.subplots(1, 1 + with_loss, squeeze=False)[0]
    lossy = [row for row in found.rows if row.snr_db is not None and row.snr_db > -math.inf]
    families = _families(lossy)
    widest = max((rows[-1].bits for rows in families.values() if len(rows) > 1), default=0.0)
    most_bits = 1.16 * (widest or max((row.bits for row in lossy), default=8.0))
    shown = [row for row in lossy if row.bits <= most_bits]

    _draw_limit(axes, found, most_bits)
    _draw_families(axes, _families(shown).values(), lambda row: row.snr_db or 0.0)
    for losses in others:
        _draw_families(losses, _families(shown).values(), lambda row: row.loss or 0.0, named=False)
        losses.set(xlabel="rate, bits per weight", ylabel="predicted loss, nats", yscale="log")
        losses.set(xlim=(0, most_bits))
        losses.grid(color="#dddddd", linewidth=0.6)
    for row in (row for row in found.rows if row not in shown):
        error = "exact" if row.snr_db is None else f"{snr_text(row.snr_db)} dB"
        label = f"not drawn: {row.label}, {row.bits:.2f} bits, {error}"
        axes.plot([], [], " ", label=_literal(label))
    snrs = [row.snr_db or 0.0 for row in shown] or [50.0]
    axes.set(xlabel="rate, bits per weight", ylabel="signal-to-noise ratio, dB")
    axes.set(xlim=(0, most_bits), ylim=(min(1.1 * min(snrs), 0.0), 1.06 * max(snrs)))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=16))
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    axes.set_title(_title(found), loc="left", fontsize=11)
    figure.supxlabel(_caption(found), x=0.01, ha="left", fontsize=7.5, color=_GREY)
    return figure


def _families(rows: Sequence[StrategyRow]) -> dict[str, list[StrategyRow]]:
    """Group the strategies that differ in rate only, by ascending bits."""
    families: dict[str, list[StrategyRow]] = {row.family: [] for row in rows}
    for row in sorted(rows, key=lambda row: row.bits):
        families[row.family].append(row)
    return families


def _draw_limit(axes: Axes, found: Benchmark, most_bits: float) -> None:
    snrs = np.linspace(0, 6.3 * most_bits * 1.5, 300)
    rates = np.array([found.limit.rate(snr) for snr in snrs])
    inside = rates <= 1.05 * most_bits
    label = "R(D), Gaussian, one variance of each tensor"
    axes.plot(rates[inside], snrs[inside], "-", color="black", linewidth=1.4, label=label)


def _draw_families(
    axes: Axes,
    families: Iterable[Sequence[StrategyRow]],
    figure: Callable[[StrategyRow], float],
    *,
    named: bool = True,
) -> None:
    styles = zip(itertools.cycle(_MARKERS), itertools.cycle(_COLOURS), strict=True)
    for rows, (marker, colour) in zip(families, styles, strict=False):
        (line,) = axes.plot([row.bits for row in rows], list(map(figure, rows)))
        label = _literal(rows[0].family) if named else "_"
        line.set(marker=marker, markersize=5, color=colour, label=label)
        line.set(linestyle="-" if len(rows) > 1 else "none", linewidth=1.2)


def _title(found: Benchmark) -> str:
    name = found.name
    if len(name) > _MAX_NAME:
        name = f"{name[: _MAX_NAME - 1]}…"
    return f"{_literal(name)}: {millions(found.weights)} weights, rate against error by strategy"


def _caption(found: Benchmark) -> str:
    counted = "Every byte of the tensors is counted"
    if found.limit.other_weights:
        counted += (
            f"; {found.fixed_bits:.2g} bits per weight, in R(D) as well, are for those that always "
            "stay lossless"
        )
    if found.sampled:
        counted += f". Estimated from a sample of {millions(found.measured_weights)} weights"
    return f"{FORMULA}, for nᵢ weights of variance σᵢ².\n{counted}."


def _literal(text: str) -> str:
    """Return text that matplotlib does not take for a formula."""
    return escaped(text).replace("$", r"\$")
