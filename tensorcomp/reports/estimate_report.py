"""Report on estimated training steps under gradient compressors."""

from __future__ import annotations

from tensorcomp._formatting import milliseconds, printable
from tensorcomp._tables import Table
from tensorcomp.gradients.cost_model.estimate import Estimate
from tensorcomp.reports.estimate_tables import bandwidth_text, estimate_notes, estimate_table
from tensorcomp.reports.report import Report, Section


def estimate_report(found: Estimate) -> Report:
    """Return what is said of a training step under each compressor."""
    table, fastest = estimate_table(found), found.fastest
    figures = [
        ("Dense step", f"{milliseconds(found.dense.step)} ms", f"{found.parameters:,} parameters"),
        ("Line", bandwidth_text(found.line), f"of each of {found.world:,} ranks"),
    ]
    if fastest is not None:
        speed = f"{fastest.speed_up:.2f}× dense, {printable(fastest.text)}"
        figures.insert(1, ("Fastest", f"{milliseconds(fastest.step)} ms", speed))
    columns = [one for one in table.columns if one.title in ("Compressor", "Step ms", "Speed-up")]
    steps = Section(
        *("Time of a step", Table(columns, found.rows)),
        *(lambda row: (row.step, row.encode + row.decode), "Bars: the step, and coding in it"),
    )
    first, *legend, verdict = estimate_notes(found)
    return Report(
        *("Gradient compression", figures, table, "compressors"),
        *([verdict, first], legend, [steps]),
    )
