"""Show the zeros of a checkpoint: the table, totals, JSON."""

from __future__ import annotations

from typing import Any

from tensorcomp._formatting import bytes_text, printable, shape_text
from tensorcomp._tables import Column, Table
from tensorcomp.sparsity.figures import SparsityReport, SparsityRow
from tensorcomp.sparsity.storage import STORAGES

_count, _density = "{:,}".format, "{:.4f}".format


def _pattern(row: SparsityRow) -> str | None:
    return None if row.pattern is None else f"{row.pattern[0]}:{row.pattern[1]}"


def _best(row: SparsityRow) -> str:
    return f"{row.best} {bytes_text(row.sizes[row.best])}"


def _storage(name: str) -> Column:
    column = Column(name.capitalize(), name, lambda row: row.sizes.get(name), bytes_text)
    return column._replace(optional=True, spare=0 if name == "dense" else 4)


_COLUMNS = (
    Column("File", "file", lambda row: row.file, printable, left=True, optional=True, heading=True),
    Column("Tensor", "", lambda row: row.name, printable, left=True),
    Column("", "name", lambda row: row.name),
    Column("", "dtype", lambda row: row.dtype),
    Column("Shape", "shape", lambda row: shape_text(row.shape), left=True, spare=2),
    Column("Type", "", lambda row: row.dtype, printable, left=True, spare=3),
    Column("", "elements", lambda row: row.elements),
    Column("Zeros", "", lambda row: row.zeros, _count, spare=1),
    Column("", "zeros", lambda row: row.zeros),
    Column("", "negative_zeros", lambda row: row.negative_zeros),
    Column("Density", "", lambda row: row.density if row.elements else None, _density),
    Column("", "density", lambda row: row.density),
    Column("Dead rows", "dead_rows", lambda row: row.dead_rows, _count),
    Column("Dead columns", "dead_columns", lambda row: row.dead_columns, _count),
    Column("", "bytes", lambda row: row.stored),
    *map(_storage, STORAGES),
    Column("Pattern", "pattern", _pattern, optional=True, spare=4),
    Column("", "best", lambda row: row.best),
    Column("Best", "", _best, left=True),
)


def sparsity_table(report: SparsityReport) -> Table:
    """Return a table of the listed tensors, and of all of them together.

    For programs, the last row has the zeros of all floats, listed or not. What a tensor lacks is
    None: bytes under a storage that does not suit it, dead rows of a vector.
    """
    elements = sum(row.elements for row in report.rows)
    zeros = sum(row.zeros for row in report.rows)
    total = {
        "Tensor": "all listed",
        "Zeros": zeros,
        "Density": (elements - zeros) / elements if elements else None,
        "Best": bytes_text(report.best_bytes),
        "name": "all floats",
        "elements": report.elements,
        "zeros": report.zeros,
        "density": report.density,
        **{storage: report.total(storage) for storage in STORAGES},
    }
    return Table(_COLUMNS, report.rows, total)


def sparsity_totals(report: SparsityReport) -> list[str]:
    """Return what there is to say of all floats together, a line each.

    Sparsity, then the listed tensors' bytes; negative zeros.
    """
    lines = [
        f"{report.elements:,} float weights, {report.zeros:,} of them zero: sparsity "
        f"{report.sparsity:.6g}"
    ]
    if report.rows:
        dense, best = report.total("dense") or 0, report.best_bytes
        lines[0] += f"; listed tensors {bytes_text(dense)} dense, {bytes_text(best)} at best"
    if report.negative_zeros:
        lines.append(
            f"{report.negative_zeros:,} zeros are −0.0 and take a bit more each; 0.0 added to a "
            "tensor makes them +0.0"
        )
    return lines


def sparsity_json(report: SparsityReport) -> dict[str, Any]:
    """Return a report as JSON values.

    The keys are part of the command line's interface.

    Returns
    -------
    dict
        ``elements``, ``zeros`` and ``sparsity`` are those of all float tensors; ``storages`` has
        the bytes of all listed tensors under each storage, null where some do not have it. Each
        of ``tensors`` has its bytes under each storage that suits it; ``pattern`` is [n, m] or
        null.
    """
    return {
        "elements": report.elements,
        "zeros": report.zeros,
        "sparsity": report.sparsity,
        "storages": {storage: report.total(storage) for storage in STORAGES},
        "best_bytes": report.best_bytes,
        "tensors": [_row_json(row) for row in report.rows],
    }


def _row_json(row: SparsityRow) -> dict[str, Any]:
    value: dict[str, Any] = {
        "name": row.name,
        "dtype": row.dtype,
        "shape": list(row.shape),
        "zeros": row.zeros,
        "negative_zeros": row.negative_zeros,
        "sparsity": row.sparsity,
        "density": row.density,
        "dead_rows": row.dead_rows,
        "dead_columns": row.dead_columns,
        "bytes": row.stored,
        "storages": dict(row.sizes),
        "best": row.best,
        "pattern": None if row.pattern is None else list(row.pattern),
    }
    return value if row.file is None else {**value, "file": row.file}
