"""The zeros of a checkpoint as lines of text, Markdown, comma-separated values, and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorcomp._formatting import bytes_text, cells, in_columns, printable, shape_text
from tensorcomp._table_formats import Cell, csv_lines, markdown_lines
from tensorcomp.reports.tables import fitted
from tensorcomp.sparsity.figures import SparsityReport, SparsityRow

_STORAGES = {
    "dense": "Dense",
    "bitmap": "Bitmap",
    "gaps": "Gaps",
    "packed": "Packed",
    "live": "Live",
    "entropy": "Entropy",
}
_FIGURES = ("Zeros", "Density", "Dead rows", "Dead columns")
_LEFT = ("File", "Tensor", "Shape", "Type")
_BEST = "*"
_TOTAL = "all listed"
_CSV = (
    *("file", "name", "dtype", "shape", "elements", "zeros", "negative_zeros", "density"),
    *("dead_rows", "dead_columns", "bytes", *_STORAGES, "pattern", "best"),
)
SPEED = (
    "zeros alone do not make a matrix product faster: n of m patterns do, on hardware that skips "
    "them, and cutting dead rows and columns out of the model does (--keep-indices)"
)


def sparsity_table(report: SparsityReport, width: int | None = None) -> list[str]:
    """Return a table of the listed tensors, and of all of them together.

    Parameters
    ----------
    report : SparsityReport
    width : int, optional
        Columns to keep within: names are folded, and of the storages only the best is shown.
    """
    if not report.rows:
        return []
    rows = _text_rows(report)
    lines = in_columns(rows, right=_right(rows[0]))
    if width is None or max(map(cells, lines)) <= width:
        return lines
    rows = [[name, *figures] for name, figures in _narrow_rows(report)]
    blocks = fitted(rows, width, right=_right(rows[0]))
    return [line for block in blocks for line in block]


def sparsity_markdown(report: SparsityReport) -> list[str]:
    """Return the table of the listed tensors in Markdown."""
    rows = [[cell.rstrip() for cell in row] for row in _text_rows(report)]
    return markdown_lines(rows, right=_right(rows[0]))


def sparsity_csv(report: SparsityReport) -> list[str]:
    """Return a line of comma-separated values for each listed tensor, and one for all floats.

    What a tensor has not is empty: bytes under a storage that does not suit it, dead rows of a
    vector.
    """
    lines: list[list[Cell]] = [
        [
            row.file,
            row.name,
            row.dtype,
            shape_text(row.shape),
            row.elements,
            row.zeros,
            row.negative_zeros,
            row.density,
            row.dead_rows,
            row.dead_columns,
            row.stored,
            *(row.sizes.get(storage) for storage in _STORAGES),
            None if row.pattern is None else f"{row.pattern[0]}:{row.pattern[1]}",
            row.best,
        ]
        for row in report.rows
    ]
    total: list[Cell] = [None, "all floats", None, None, report.elements, report.zeros, None]
    total += [report.density, None, None, None]
    total += [report.total(storage) for storage in _STORAGES]
    return csv_lines(_CSV, [*lines, [*total, None, None]])


def sparsity_totals(report: SparsityReport) -> list[str]:
    """Return what there is to say of all floats together, a line each.

    Sparsity, then the listed tensors' bytes; negative zeros; what zeros do not do.
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
    return [*lines, SPEED]


def sparsity_json(report: SparsityReport, seconds: float) -> dict[str, Any]:
    """Return a report as JSON values; the keys are part of the command line's interface.

    Parameters
    ----------
    report : SparsityReport
    seconds : float
        How long it took.

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
        "storages": {storage: report.total(storage) for storage in _STORAGES},
        "best_bytes": report.best_bytes,
        "seconds": round(seconds, 6),
        "tensors": [_json_row(row) for row in report.rows],
    }


def _json_row(row: SparsityRow) -> dict[str, Any]:
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


def _right(head: Sequence[str]) -> list[int]:
    return [number for number, title in enumerate(head) if title not in _LEFT]


def _text_rows(report: SparsityReport) -> list[list[str]]:
    """Return the cells of all tensors, under every storage that any of them has."""
    shown = [name for name in _STORAGES if any(name in row.sizes for row in report.rows)]
    with_file = any(row.file is not None for row in report.rows)
    head = ["Tensor", "Shape", "Type", *_FIGURES]
    rows = [[*head, *(_STORAGES[name] for name in shown)]]
    for row in report.rows:
        cells_of = [printable(row.name), shape_text(row.shape), printable(row.dtype)]
        cells_of += _figures(row)
        rows.append([*cells_of, *(_size_text(row, name) for name in shown)])
    elements = sum(row.elements for row in report.rows)
    zeros = sum(row.zeros for row in report.rows)
    last = [_TOTAL, "", "", f"{zeros:,}", _density_text(zeros, elements), "", ""]
    totals = (report.total(name) for name in shown)
    rows.append([*last, *("-" if size is None else bytes_text(size) for size in totals)])
    if not with_file:
        return rows
    files = ["File", *(printable(row.file or "") for row in report.rows), ""]
    return [[file, *line] for file, line in zip(files, rows, strict=True)]


def _narrow_rows(report: SparsityReport) -> list[tuple[str, list[str]]]:
    rows = [("Tensor", ["Density", "Dead rows", "columns", "Dense", "Best", "is"])]
    for row in report.rows:
        _, density, dead_rows, dead_columns = _figures(row)
        best = bytes_text(row.sizes[row.best])
        sizes = [bytes_text(row.sizes["dense"]), best, _storage_text(row, row.best).lower()]
        rows.append((printable(row.name), [density, dead_rows, dead_columns, *sizes]))
    return rows


def _figures(row: SparsityRow) -> list[str]:
    dead = ["-" if count is None else f"{count:,}" for count in (row.dead_rows, row.dead_columns)]
    return [f"{row.zeros:,}", _density_text(row.zeros, row.elements), *dead]


def _density_text(zeros: int, elements: int) -> str:
    return f"{(elements - zeros) / elements:.4f}" if elements else "-"


def _storage_text(row: SparsityRow, storage: str) -> str:
    if storage == "packed" and row.pattern is not None:
        return f"{row.pattern[0]}:{row.pattern[1]}"
    return _STORAGES[storage]


def _size_text(row: SparsityRow, storage: str) -> str:
    size = row.sizes.get(storage)
    if size is None:
        return "-"
    pattern = f"{_storage_text(row, storage)} " if storage == "packed" else ""
    return f"{pattern}{bytes_text(size)}{_BEST if storage == row.best else ' '}"
