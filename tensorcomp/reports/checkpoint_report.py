"""Report on a checkpoint: compressed, planned, or as it is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from tensorcomp._formatting import bits_text, bytes_text, counted, printable, ratio_text, snr_text
from tensorcomp._tables import Column, Table
from tensorcomp.api.compress_result import CompressResult
from tensorcomp.api.plan import PlanReport
from tensorcomp.pipeline.summary import CheckpointSummary, FileFigures
from tensorcomp.pipeline.tensor_summary import TensorSummary
from tensorcomp.reports.inspect_tables import GAP, planned_line, remarks
from tensorcomp.reports.report import Plot, Report, Section, Series, Share, layers, shares_section

_DECIBELS = 20 * math.log10(2)  # of a bit
_WORST = 8
_OF_WORST = ("Tensor", "Shape", "Role", "Bits", "Ratio", "SNR dB", "Row dB", "Output")


def checkpoint_report(result: CompressResult | CheckpointSummary) -> Report:
    """Return what is said of a checkpoint: compressed, planned, or as it is."""
    stored = result.path if isinstance(result, CompressResult) else None
    summary = result.summary if isinstance(result, CompressResult) else result
    kind, notes = "Compressed checkpoint" if summary.compressed else "Checkpoint", remarks(summary)
    if isinstance(summary, PlanReport):
        kind, notes = "Plan", [*summary.copied_line(), *planned_line(summary)]
    names, rows = ("Before", "After") if summary.compressed else ("Bytes",), summary.tensors
    shares = [Share(r.name, r.nbytes, r.stored, 0 if r.tied else r.weights) for r in rows]
    by_role = (one._replace(label=row.role) for one, row in zip(shares, rows, strict=True))
    sections: list[Section | Plot] = [
        shares_section("Bytes by role", by_role, names),
        shares_section("Bytes by layer", layers(shares), names),
    ]
    if summary.related:
        sections.insert(0, _files_section(summary.files))
    lost = sorted((row for row in rows if row.rel_l2), key=_quality)
    worst = worst_table(summary.table(), lost, _OF_WORST)
    return Report(
        kind,
        list(_figures(summary)),
        summary.table(),
        notes=notes,
        legend=[GAP] if summary.lossy else [],
        sections=[*sections, *_rates(rows), *worst] if summary.lossy else sections,
        stored=stored,
    )


def _files_section(files: Sequence[FileFigures]) -> Section:
    """Return a table of the files of a folder, and what they are coded against."""
    columns = [
        Column("File", "", lambda one: one.file, printable, left=True),
        Column("Base", "", lambda one: ", ".join(one.bases) or None, printable, left=True),
        Column("Before", "", lambda one: one.input_bytes, bytes_text),
        Column("After", "", lambda one: one.output_bytes, bytes_text),
        Column("Ratio", "", lambda one: one.input_bytes / one.output_bytes, ratio_text),
    ]
    note = "Bars: before in grey, after in blue"
    return Section("Bytes by file", Table(columns, files), lambda one: one[2:], note)


def worst_table(table: Table, rows: Sequence[Any], titles: Sequence[str]) -> list[Section | Plot]:
    """Return a table of the first few rows, in some of the columns."""
    columns = [column for column in table.columns if column.title in titles]
    note = f"The first {_WORST} by error"
    return [Section("Tensors that lost most", Table(columns, rows[:_WORST]), note=note)]


def error_plot(title: str, x: str, series: Sequence[Series], note: str) -> list[Section | Plot]:
    """Return a plot of signal-to-noise ratios that are finite; none without any."""
    finite = []
    for one in series:
        kept = [n for n, point in enumerate(one.points) if all(map(math.isfinite, point))]
        rows = [one.rows[n] for n in kept] if one.rows else ()
        finite.append(one._replace(points=[one.points[n] for n in kept], rows=rows))
    drawn = [one for one in finite if one.points]
    return [Plot(title, x, "SNR, dB", drawn, note)] if any(one.rows for one in drawn) else []


def _figures(summary: CheckpointSummary) -> Iterable[tuple[str, str, str]]:
    about = "about " if isinstance(summary, PlanReport) else ""
    before = f"of {bytes_text(summary.input_bytes)}" if summary.compressed else ""
    yield "Size", about + bytes_text(summary.output_bytes), before
    if summary.compressed:
        yield "Ratio", ratio_text(summary.ratio), "bytes before / after"
    yield "Bits per weight", bits_text(summary.bits_per_weight), "every byte counted"
    if summary.lossy:
        error = max(row.rel_l2 for row in summary.tensors if row.rel_l2)
        worst = f"rel-L2 ≤ {error:.3g} of each tensor"
        yield "Lowest SNR", f"{snr_text(-20 * math.log10(error))} dB", worst
    elif summary.compressed:
        yield "Error", "none", "every bit comes back"
    output = max((row.output_error for row in summary.tensors), default=0.0)
    if output:
        yield "Output error", f"≤ {output:.3g}", "of each layer's output, relative"
    count = sum(not row.tied for row in summary.tensors)
    yield "Tensors", f"{count:,}", counted(summary.weights, "weight")


def _quality(row: TensorSummary) -> tuple[float, ...]:
    """Return a key that puts lost rows first, then the largest errors."""
    lost = 0.0 if row.output_error else row.row_error
    return -lost, -row.output_error, -row.rel_l2


def _rates(rows: Sequence[TensorSummary]) -> list[Section | Plot]:
    """Return the plot of each tensor's rate and error, by roles, with R(D)."""
    roles: dict[str, dict[int, tuple[float, float]]] = {}
    for n, row in enumerate(rows):
        if row.snr_db is not None and row.bits_per_weight is not None and row.same_as is None:
            roles.setdefault(row.role, {})[n] = row.bits_per_weight, row.snr_db
    series = (
        Series(printable(role), list(points.values()), list(points))
        for role, points in roles.items()
    )
    line = [(n / 64, n / 64 * _DECIBELS) for n in range(32 * 64)]
    limit = Series("R(D), Gaussian weights of one scale", line)
    exact = sum(row.snr_db is None for row in rows)
    note = "Each point is a tensor; R(D) = ½ log₂(σ²/D) is 6.02 dB a bit."
    note += f" {counted(exact, 'tensor')} that lost nothing are not drawn." if exact else ""
    title, x = "Rate and distortion", "bits per weight"
    return error_plot(title, x, [*sorted(series), limit], note)
