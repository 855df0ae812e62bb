"""Show a comparison of two checkpoints: the table, totals in one line, JSON."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tensorcomp._formatting import (
    bytes_text,
    counted,
    printable,
    ratio_text,
    shape_text,
    three_digits,
)
from tensorcomp._tables import Column, Table, Value, json_value
from tensorcomp.metrics.comparison import ComparedTensor, Comparison, TensorComparison
from tensorcomp.metrics.distortion import ErrorSums


def _number(value: float) -> str:
    return three_digits(value) if 1000 <= value < 1e9 else f"{value:.3g}"


_FIGURES = ("l1", "l2", "rel_l2", "worst_row_rel_l2", "max_abs_error", "snr_db", "cosine")
_ATTRIBUTES = {"worst_row_rel_l2": "worst_row", "max_abs_error": "max_abs"}  # of other names


def _figures(errors: ErrorSums | None) -> dict[str, float | None]:
    return {key: getattr(errors, _ATTRIBUTES.get(key, key), None) for key in _FIGURES}


def _of_output(row: TensorComparison) -> dict[str, float]:
    """Return the figures that take statistics; none without."""
    errors = row.errors
    if not row.statistics or errors is None:
        return {}
    return {"output_error": errors.output_error, "predicted_loss": errors.loss}


def _snr(errors: ErrorSums | None) -> float | None:
    """Return an SNR in dB, infinite if exact; None without errors."""
    if errors is None:
        return None
    return math.inf if errors.snr_db is None else errors.snr_db


def _snr_text(snr: float) -> str:
    return "exact" if snr == math.inf else f"{snr:z.2f}"


def _named(row: TensorComparison) -> str:
    return printable(row.name) + (f"\n  {printable(row.problem)}" if row.problem else "")


def _both(row: TensorComparison, text: Callable[[ComparedTensor], str]) -> str:
    """Return what both sides have, said once where it is the same."""
    return " → ".join(dict.fromkeys(text(held) for held in (row.a, row.b) if held is not None))


def _figure(
    title: str, key: str, text: Callable[[Any], str] = _number, *, spare: int = 0
) -> Column:
    return Column(title, key, lambda row: _figures(row.errors)[key], text, spare=spare)


def _side(side: str) -> tuple[Column, ...]:
    """Return the columns of one side, for programs, and its bytes."""

    def of(figure: Callable[[ComparedTensor], Value]) -> Callable[[TensorComparison], Value]:
        return lambda row: (held := getattr(row, side)) and figure(held)

    return (
        Column("", f"{side}_dtype", of(lambda held: held.dtype)),
        Column("", f"{side}_shape", of(lambda held: shape_text(held.shape))),
        Column(f"Bytes {side}", f"{side}_bytes", of(lambda held: held.stored), bytes_text, spare=2),
    )


_COLUMNS = (
    Column("File", "file", lambda row: row.file, printable, left=True, optional=True, heading=True),
    Column("Tensor", "", _named, left=True),
    Column("", "tensor", lambda row: row.name),
    Column("Shape", "", lambda row: _both(row, lambda held: shape_text(held.shape)), left=True),
    Column("Type", "", lambda row: _both(row, lambda held: printable(held.dtype)), left=True),
    *_side("a"),
    *_side("b"),
    Column("Ratio", "ratio", lambda row: row.ratio, ratio_text),
    _figure("L1", "l1", spare=4),
    _figure("L2", "l2", spare=4),
    _figure("rel-L2", "rel_l2"),
    _figure("Worst row", "worst_row_rel_l2", spare=3),
    _figure("Max error", "max_abs_error"),
    Column("SNR dB", "", lambda row: _snr(row.errors), _snr_text),
    _figure("", "snr_db"),
    _figure("Cosine", "cosine", "{:.6f}".format),
    Column("", "problem", lambda row: row.problem or None),
)
_WITH_STATISTICS = (
    Column("Output", "output_error", lambda row: _of_output(row).get("output_error"), _number),
    Column("Loss", "predicted_loss", lambda row: _of_output(row).get("predicted_loss"), _number),
)


def comparison_table(comparison: Comparison) -> Table:
    """Return a table of all tensors, and of all floats together.

    For programs, infinite errors are ``inf``; an SNR that is empty beside an L1 of 0 is exact.
    """
    errors = comparison.total if comparison.total.count else None
    total = {
        "Tensor": "all floats",
        "tensor": "all floats",
        "a_bytes": comparison.a_bytes,
        "b_bytes": comparison.b_bytes,
        "ratio": comparison.ratio,
        "SNR dB": _snr(errors),
        **_figures(errors),
    }
    if comparison.loss is None:
        return Table(_COLUMNS, comparison.tensors, total)
    total["predicted_loss"] = comparison.loss
    return Table((*_COLUMNS, *_WITH_STATISTICS), comparison.tensors, total)


def comparison_totals(comparison: Comparison) -> str:
    """Return sizes, ratio and the errors of all floats in one line."""
    total = comparison.total
    exact = sum(row.errors is not None and row.errors.exact for row in comparison.tensors)
    sizes = f"{bytes_text(comparison.a_bytes)} and {bytes_text(comparison.b_bytes)}"
    counts = f"{counted(len(comparison.tensors), 'tensor')}, {exact:,} of them equal"
    if comparison.problems:
        counts += f", {len(comparison.problems):,} not compared"
    errors = ""
    if total.count and not total.exact:
        errors = (
            f", rel-L2 {_number(total.rel_l2)}, SNR {_snr_text(total.snr_db or 0)} dB, max error "
            f"{_number(total.max_abs)}"
        )
    if comparison.loss is not None:
        errors += f", predicted loss {_number(comparison.loss)} nats"
    return f"{sizes}: ratio {ratio_text(comparison.ratio)}{errors}; {counts}"


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON values, whose keys are a public interface.

    Returns
    -------
    dict
        ``input_bytes`` is the size of a, ``output_bytes`` that of b, ``ratio`` the first over the
        second, ``exact`` whether all tensors are there and equal, ``total`` the errors of all
        floats. Each of ``tensors`` has its two sides (null where one lacks it), its errors, and its
        ``problem``, null if it could be compared; errors are null if not. An SNR is null if exact.
        Tensors of which there are statistics have ``output_error`` and ``predicted_loss``, and all
        together ``predicted_loss``, in nats a term of the loss.
        A figure that is infinite is the text ``inf`` or ``-inf``.
    """
    return {
        "input_bytes": comparison.a_bytes,
        "output_bytes": comparison.b_bytes,
        "ratio": comparison.ratio,
        "exact": comparison.exact,
        "total": _json_figures(comparison.total),
        **({} if comparison.loss is None else {"predicted_loss": json_value(comparison.loss)}),
        "tensors": [_json_row(row) for row in comparison.tensors],
    }


def _json_row(row: TensorComparison) -> dict[str, Any]:
    value: dict[str, Any] = {
        "name": row.name,
        "a": _json_side(row.a),
        "b": _json_side(row.b),
        "ratio": row.ratio,
        **_json_figures(row.errors),
        **{key: json_value(value) for key, value in _of_output(row).items()},
        "problem": row.problem or None,
    }
    return value if row.file is None else {**value, "file": row.file}


def _json_side(held: ComparedTensor | None) -> dict[str, Any] | None:
    if held is None:
        return None
    return {"dtype": held.dtype, "shape": list(held.shape), "bytes": held.stored}


def _json_figures(errors: ErrorSums | None) -> dict[str, Any]:
    return {key: json_value(value) for key, value in _figures(errors).items()}
