"""Report on strategies that were measured on a checkpoint."""

from __future__ import annotations

from tensorcomp._formatting import bytes_text
from tensorcomp.benchmark.figures import Benchmark, millions
from tensorcomp.benchmark.tables import benchmark_notes, benchmark_table
from tensorcomp.reports.checkpoint_report import error_plot
from tensorcomp.reports.report import Report, Series


def benchmark_report(found: Benchmark) -> Report:
    """Return what is said of all strategies, and R(D)."""
    families: dict[str, list[int]] = {}
    for n, row in sorted(enumerate(found.rows), key=lambda pair: pair[1].bits):
        if row.snr_db is not None:
            families.setdefault(row.family, []).append(n)
    alone = [rows.pop() for rows in families.values() if len(rows) == 1]
    families = {family: rows for family, rows in families.items() if rows}
    series = [_series(found, *item, joined=True) for item in families.items()]
    series.append(_series(found, "strategies of one rate", alone, joined=False))
    limit = [(found.limit.rate(snr / 2), snr / 2) for snr in range(240)]
    series.append(Series("R(D), Gaussian, one variance of each tensor", limit))
    exact = min((row.bits for row in found.rows if row.snr_db is None), default=None)
    figures = [
        ("Strategies", f"{len(found.rows):,}", f"profile {found.profile}"),
        ("Size", bytes_text(found.input_bytes), f"{millions(found.weights)} weights"),
        ("Measured on", millions(found.measured_weights), "weights"),
    ]
    if exact is not None:
        figures.append(("Lossless", f"{exact:.2f}", "bits per weight"))
    plot = error_plot(
        *("Rate and distortion", "bits per weight", series),
        "Strategies that differ in rate only are joined; those that lose nothing are not drawn.",
    )
    first, *legend = benchmark_notes(found)
    table = benchmark_table(found)
    return Report("Benchmark", figures, table, "strategies", [first], legend, plot)


def _series(found: Benchmark, label: str, rows: list[int], *, joined: bool) -> Series:
    points = [(found.rows[n].bits, found.rows[n].snr_db or 0.0) for n in rows]
    return Series(label, points, rows, joined)
