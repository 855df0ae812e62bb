"""A comparison of two checkpoints as lines of text, Markdown, comma-separated values, and JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tensorcomp._formatting import (
    bytes_text,
    cells,
    in_columns,
    printable,
    ratio_text,
    shape_text,
    three_digits,
)
from tensorcomp._table_formats import Cell, csv_lines, markdown_lines
from tensorcomp.metrics.comparison import Comparison, Held, TensorComparison
from tensorcomp.metrics.distortion import ErrorSums
from tensorcomp.reports.tables import fitted

_COLUMNS = (
    "Tensor",
    "Shape",
    "Type",
    "Bytes a",
    "Bytes b",
    "Ratio",
    "L1",
    "L2",
    "rel-L2",
    "Max error",
    "SNR dB",
    "Cosine",
)
_NARROW = (0, 2, 5, 8, 9, 10, 11)  # of these columns, where all do not fit
_LEFT = ("File", "Tensor", "Shape", "Type")
_CSV = ("file", "tensor", "a_dtype", "a_shape", "a_bytes", "b_dtype", "b_shape", "b_bytes", "ratio")
_FIGURES = ("l1", "l2", "rel_l2", "max_abs_error", "snr_db", "cosine")
_TOTAL = "all floats"


def comparison_table(comparison: Comparison, width: int | None = None) -> list[str]:
    """Return a table of all tensors, and of all floats together.

    Parameters
    ----------
    comparison : Comparison
    width : int, optional
        Columns to keep within: names are folded, and shapes, bytes and sums are left out.
    """
    rows = _text_rows(comparison)
    lines = in_columns(rows, right=_right(rows[0]))
    if width is None or max(map(cells, lines)) <= width:
        return lines
    first = rows[0].index(_COLUMNS[0])
    narrow = [[row[first + column] for column in _NARROW] for row in rows]
    blocks = fitted(narrow, width, right=_right(narrow[0]))
    return [line for block in blocks for line in block]


def comparison_markdown(comparison: Comparison) -> list[str]:
    """Return the table of all tensors in Markdown."""
    rows = _text_rows(comparison, between=": ")
    return markdown_lines(rows, right=_right(rows[0]))


def comparison_csv(comparison: Comparison) -> list[str]:
    """Return a line of comma-separated values for each tensor, and one for all floats, named so.

    Infinite errors are ``inf``; an SNR that is empty beside an L1 of 0 is exact.
    """
    lines: list[list[Cell]] = [
        [
            row.file,
            row.name,
            *_csv_cells(row.a),
            *_csv_cells(row.b),
            row.ratio,
            *_figures(row.errors),
            row.problem or None,
        ]
        for row in comparison.tensors
    ]
    sizes = [None, None, comparison.a_bytes, None, None, comparison.b_bytes, comparison.ratio]
    lines.append([None, _TOTAL, *sizes, *_figures(_compared(comparison)), None])
    return csv_lines([*_CSV, *_FIGURES, "problem"], lines)


def comparison_totals(comparison: Comparison) -> str:
    """Return sizes, ratio and the errors of all floats in one line."""
    total = comparison.total
    exact = sum(row.errors is not None and row.errors.exact for row in comparison.tensors)
    sizes = f"{bytes_text(comparison.a_bytes)} and {bytes_text(comparison.b_bytes)}"
    number = len(comparison.tensors)
    counts = f"{number:,} tensor{'' if number == 1 else 's'}, {exact:,} of them equal"
    if comparison.problems:
        counts += f", {len(comparison.problems):,} not compared"
    if not total.count or total.exact:
        return f"{sizes}: ratio {ratio_text(comparison.ratio)}; {counts}"
    errors = (
        f"rel-L2 {_number(total.rel_l2)}, SNR {_snr(total)} dB, max error {_number(total.max_abs)}"
    )
    return f"{sizes}: ratio {ratio_text(comparison.ratio)}, {errors}; {counts}"


def comparison_json(comparison: Comparison, seconds: float) -> dict[str, Any]:
    """Return a comparison as JSON values; the keys are part of the command line's interface.

    Parameters
    ----------
    comparison : Comparison
    seconds : float
        How long it took.

    Returns
    -------
    dict
        ``input_bytes`` is the size of a, ``output_bytes`` that of b, ``ratio`` the first over the
        second, ``exact`` whether all tensors are there and equal, ``total`` the errors of all
        floats. Each of ``tensors`` has its two sides (null where one lacks it), its errors, and its
        ``problem``, null if it could be compared; errors are null if not. An SNR is null if exact.
        A figure that is infinite is the text ``inf`` or ``-inf``.
    """
    return {
        "input_bytes": comparison.a_bytes,
        "output_bytes": comparison.b_bytes,
        "ratio": comparison.ratio,
        "exact": comparison.exact,
        "seconds": round(seconds, 6),
        "total": _json_figures(comparison.total),
        "tensors": [_json_row(row) for row in comparison.tensors],
    }


def _json_row(row: TensorComparison) -> dict[str, Any]:
    value: dict[str, Any] = {
        "name": row.name,
        "a": _json_side(row.a),
        "b": _json_side(row.b),
        "ratio": row.ratio,
        **_json_figures(row.errors),
        "problem": row.problem or None,
    }
    return value if row.file is None else {**value, "file": row.file}


def _json_side(held: Held | None) -> dict[str, Any] | None:
    if held is None:
        return None
    return {"dtype": held.dtype, "shape": list(held.shape), "bytes": held.stored}


def _json_figures(errors: ErrorSums | None) -> dict[str, float | str | None]:
    return {
        name: str(value) if isinstance(value, float) and math.isinf(value) else value
        for name, value in zip(_FIGURES, _figures(errors), strict=True)
    }


def _figures(errors: ErrorSums | None) -> tuple[float | None, ...]:
    if errors is None:
        return (None,) * len(_FIGURES)
    return errors.l1, errors.l2, errors.rel_l2, errors.max_abs, errors.snr_db, errors.cosine


def _csv_cells(held: Held | None) -> tuple[Cell, ...]:
    return (None,) * 3 if held is None else (held.dtype, shape_text(held.shape), held.stored)


def _right(head: Sequence[str]) -> list[int]:
    return [number for number, title in enumerate(head) if title not in _LEFT]


def _compared(comparison: Comparison) -> ErrorSums | None:
    """Return the errors of all floats together; None where none could be compared."""
    return comparison.total if comparison.total.count else None


def _text_rows(comparison: Comparison, between: str = "\n  ") -> list[list[str]]:
    """Return the cells of all tensors; `between` stands between a name and its problem."""
    with_file = any(row.file is not None for row in comparison.tensors)
    rows = [[*_COLUMNS]]
    for row in comparison.tensors:
        name = printable(row.name) + (between + printable(row.problem) if row.problem else "")
        rows.append([name, *_sides(row), ratio_text(row.ratio), *_error_cells(row.errors)])
    sizes = bytes_text(comparison.a_bytes), bytes_text(comparison.b_bytes)
    ratio = ratio_text(comparison.ratio)
    rows.append([_TOTAL, "", "", *sizes, ratio, *_error_cells(_compared(comparison))])
    if not with_file:
        return rows
    files = ["File", *(printable(row.file or "") for row in comparison.tensors), ""]
    return [[file, *row] for file, row in zip(files, rows, strict=True)]


def _sides(row: TensorComparison) -> tuple[str, str, str, str]:
    """Return shape, type and bytes of both sides, said once where they are the same."""
    sides = [held for held in (row.a, row.b) if held is not None]
    shapes = dict.fromkeys(shape_text(held.shape) for held in sides)
    types = dict.fromkeys(printable(held.dtype) for held in sides)
    stored = ["-" if held is None else bytes_text(held.stored) for held in (row.a, row.b)]
    return " → ".join(shapes), " → ".join(types), stored[0], stored[1]


def _error_cells(errors: ErrorSums | None) -> list[str]:
    if errors is None:
        return ["-"] * len(_FIGURES)
    cosine = "-" if errors.cosine is None else f"{errors.cosine:.6f}"
    lengths = [_number(value) for value in (errors.l1, errors.l2, errors.rel_l2, errors.max_abs)]
    return [*lengths, _snr(errors), cosine]


def _snr(errors: ErrorSums) -> str:
    return "exact" if errors.snr_db is None else f"{errors.snr_db:.2f}"


def _number(value: float) -> str:
    return three_digits(value) if 1000 <= value < 1e9 else f"{value:.3g}"
