"""Report on the zeros of a checkpoint."""

from __future__ import annotations

from tensorcomp._formatting import bytes_text, percent
from tensorcomp._tables import Column, Table
from tensorcomp.reports.report import Report, Section, Share, layers, shares_section
from tensorcomp.sparsity.figures import SparsityReport
from tensorcomp.sparsity.storage import STORAGES
from tensorcomp.sparsity.tables import sparsity_table, sparsity_totals


def zeros_report(found: SparsityReport) -> Report:
    """Return what is said of zeros, and of what they save."""
    figures = [("Sparsity", percent(found.sparsity), f"{found.zeros:,} of {found.elements:,}")]
    sections = []
    if found.rows:
        dense = found.total("dense") or 0
        figures.append(("At best", bytes_text(found.best_bytes), f"of {bytes_text(dense)} dense"))
        sizes = [(name, found.total(name)) for name in (*STORAGES, "best")]
        sizes[-1] = "best of each", found.best_bytes
        columns = [
            Column("Storage", "", lambda row: row[0].capitalize(), left=True),
            Column("Bytes", "", lambda row: row[1], bytes_text),
        ]
        known = [(name, size) for name, size in sizes if size is not None]
        storages = Table(columns, known)
        sections.append(Section("Bytes by storage", storages, lambda row: row[1:], "Bars: bytes"))
        shares = (
            Share(row.name, row.sizes["dense"], row.sizes[row.best], row.elements)
            for row in found.rows
        )
        sections.append(shares_section("Bytes by layer", layers(shares), ("Dense", "Best")))
    figures.append(("Tensors", f"{len(found.rows):,}", "listed"))
    notes = sparsity_totals(found)
    return Report("Sparsity", figures, sparsity_table(found), notes=notes, sections=sections)
