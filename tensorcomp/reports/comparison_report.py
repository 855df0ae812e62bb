"""Report on two checkpoints that were compared."""

from __future__ import annotations

import math

from tensorcomp._formatting import bytes_text, ratio_text, snr_text
from tensorcomp.metrics.comparison import Comparison, TensorComparison
from tensorcomp.reports.checkpoint_report import error_plot, worst_table
from tensorcomp.reports.comparison_tables import comparison_table, comparison_totals
from tensorcomp.reports.report import Report, Series, Share, layers, shares_section

_OF_WORST = ("Tensor", "Shape", "Ratio", "rel-L2", "Worst row", "Max error", "SNR dB", "Output")


def comparison_report(found: Comparison) -> Report:
    """Return what is said of two checkpoints."""
    total, rows = found.total, found.tensors
    equal = sum(row.errors is not None and row.errors.exact for row in rows)
    snr = "exact" if total.snr_db is None else f"{snr_text(total.snr_db)} dB"
    figures = [
        ("Size of b", bytes_text(found.b_bytes), f"a: {bytes_text(found.a_bytes)}"),
        ("Ratio", ratio_text(found.ratio), "bytes a / b"),
        ("SNR", snr, f"all floats, rel-L2 {total.rel_l2:.3g}"),
        ("Largest error", f"{total.max_abs:.3g}", "of any float"),
        ("Equal tensors", f"{equal:,}", f"of {len(rows):,}, {len(found.problems):,} not compared"),
    ]
    shares = layers(
        Share(row.name, row.a.stored, row.b.stored, math.prod(row.a.shape))
        for row in rows
        if row.a is not None and row.b is not None
    )
    sections = [shares_section("Bytes by layer", shares, ("a", "b"))] if shares else []
    table = comparison_table(found)
    places = [n for n, row in enumerate(rows) if _snr(row) is not None]
    points = [(n + 1.0, _snr(rows[n]) or 0.0) for n in places]
    plot = error_plot(
        *("Error by tensor", "tensor, in the order of a"),
        [Series("tensors", points, places)],
        "Higher is nearer to a; equal tensors are not drawn.",
    )
    lost = sorted((rows[n] for n in places), key=lambda row: _snr(row) or 0.0)
    return Report(
        *("Comparison", figures, table),
        notes=[comparison_totals(found)],
        sections=[*sections, *([*plot, *worst_table(table, lost, _OF_WORST)] if places else [])],
    )


def _snr(row: TensorComparison) -> float | None:
    return None if row.errors is None else row.errors.snr_db
