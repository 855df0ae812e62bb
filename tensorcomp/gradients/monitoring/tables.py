"""What gradient compression costs and does, as lines of text and comma-separated values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from tensorcomp._formatting import (
    bits_text,
    bytes_text,
    cells,
    column_widths,
    counted,
    in_columns,
    printable,
    ratio_text,
    three_digits,
)
from tensorcomp._table_formats import Cell, csv_lines
from tensorcomp.reports.tables import fitted

if TYPE_CHECKING:
    from tensorcomp.gradients.monitoring.metrics import History, StepMetrics, TensorMetrics

_LEFT = ("Tensor", "Compressor")
_LESS_NEEDED = ("Compressor", "Elements", "Raw", "Decode ms", "Encode ms", "Bits", "Error")
_ALL = "all"
_NARROWEST = 20  # columns of a name
_CSV = (
    *("step", "name", "compressor", "elements", "raw_bytes", "payload_bytes", "density"),
    *("residual_ratio", "cosine", "rel_l2", "achieved", "nonfinite"),
    *("encode_seconds", "decode_seconds"),
)


def gradient_totals(history: History) -> list[str]:
    """Return what there is to say of all steps together, a line each.

    Parameters
    ----------
    history : History
    """
    if not history.count:
        return ["no step yet"]
    payload, framed = history.payload_bytes, history.framed_bytes
    smaller = f", {ratio_text(history.raw_bytes / framed)}× smaller" if framed else ""
    lines = [
        f"{counted(history.count, 'step')}: gradients {bytes_text(history.raw_bytes)}, payloads "
        f"{bytes_text(payload)}, framed {bytes_text(framed)}{smaller}"
    ]
    lines.append(f"sent by this worker: {bytes_text(history.wire_bytes)} by formula")
    kept = list(history)
    encode, communicate, decode = (
        _ms(_mean([getattr(step, f"{part}_seconds") for step in kept]))
        for part in ("encode", "communicate", "decode")
    )
    lines.append(
        f"a step, mean of the last {len(kept):,}: encode {encode} ms, communicate {communicate} "
        f"ms, decode {decode} ms"
    )
    if history.skipped:
        lines.append(
            f"{counted(history.skipped, 'step')} skipped: a value was not finite on some worker"
        )
    return lines


def gradient_table(steps: Iterable[StepMetrics], width: int | None = None) -> list[str]:
    """Return a table of the tensors of the last step, their figures averaged over all steps.

    Parameters
    ----------
    steps : iterable of StepMetrics
    width : int, optional
        Columns to keep within: names are folded, and columns that can be done without left out.
    """
    kept = list(steps)
    if not kept or not kept[-1].tensors:
        return []
    by_name: dict[str, list[TensorMetrics]] = {t.name: [] for t in kept[-1].tensors}
    for step in kept:
        for tensor in step.tensors:
            by_name.get(tensor.name, []).append(tensor)
    columns = [("Tensor", [printable(name) for name in by_name] + [_ALL])]
    for title, cell in _COLUMNS.items():
        texts = [cell(rows) for rows in by_name.values()]
        if any(text not in ("-", "0") for text in texts):
            columns.append((title, [*texts, _overall(title, kept)]))
    rows = [list(row) for row in zip(*([title, *texts] for title, texts in columns), strict=True)]
    lines = in_columns(rows, right=_right(rows[0]))
    if width is None or max(map(cells, lines)) <= width:
        return lines
    for title in _LESS_NEEDED:
        others = column_widths(rows)[1:]
        if sum(others) + len(others) + _NARROWEST <= width:
            break
        if title in rows[0]:
            place = rows[0].index(title)
            rows = [[*row[:place], *row[place + 1 :]] for row in rows]
    return [line for block in fitted(rows, width, right=_right(rows[0])) for line in block]


def gradient_csv(steps: Iterable[StepMetrics]) -> list[str]:
    """Return a line of comma-separated values for each tensor of each step.

    What was not measured is empty.
    """
    rows: list[list[Cell]] = [
        [
            step.step,
            tensor.name,
            tensor.compressor,
            tensor.elements,
            tensor.raw_bytes,
            tensor.payload_bytes,
            tensor.density,
            tensor.residual_ratio,
            tensor.cosine,
            None if tensor.error is None else tensor.error.rel_l2,
            tensor.achieved,
            tensor.nonfinite,
            tensor.encode_seconds,
            tensor.decode_seconds,
        ]
        for step in steps
        for tensor in step.tensors
    ]
    return csv_lines(_CSV, rows)


def _right(head: Sequence[str]) -> list[int]:
    return [number for number, title in enumerate(head) if title not in _LEFT]


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else three_digits(1e3 * seconds)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _rel_l2(rows: Sequence[TensorMetrics]) -> float | None:
    return _mean(None if row.error is None else row.error.rel_l2 for row in rows)


_COLUMNS: dict[str, Callable[[Sequence[TensorMetrics]], str]] = {
    "Compressor": lambda rows: printable(rows[-1].compressor),
    "Elements": lambda rows: f"{rows[-1].elements:,}",
    "Raw": lambda rows: bytes_text(rows[-1].raw_bytes),
    "Payload": lambda rows: bytes_text(round(_mean(row.payload_bytes for row in rows) or 0)),
    "Bits": lambda rows: bits_text(_mean(row.bits for row in rows)),
    "Density": lambda rows: _figure(_mean(row.density for row in rows)),
    "Residual": lambda rows: _figure(_mean(row.residual_ratio for row in rows)),
    "Cosine": lambda rows: _figure(_mean(row.cosine for row in rows)),
    "Error": lambda rows: _figure(_rel_l2(rows)),
    "Achieved": lambda rows: _figure(_mean(row.achieved for row in rows)),
    "Encode ms": lambda rows: _ms(_mean(row.encode_seconds for row in rows)),
    "Decode ms": lambda rows: _ms(_mean(row.decode_seconds for row in rows)),
    "Not finite": lambda rows: f"{sum(row.nonfinite for row in rows):,}",
}


def _overall(title: str, steps: Sequence[StepMetrics]) -> str:
    """Return a cell of the last row: that of all tensors together."""
    last = steps[-1]
    payload = _mean(step.payload_bytes for step in steps) or 0.0
    figures = {
        "Elements": lambda: f"{last.elements:,}",
        "Raw": lambda: bytes_text(last.raw_bytes),
        "Payload": lambda: bytes_text(round(payload)),
        "Bits": lambda: bits_text(8 * payload / last.elements if last.elements else None),
        "Density": lambda: _figure(_mean(step.density for step in steps)),
        "Residual": lambda: _figure(_mean(step.residual_ratio for step in steps)),
        "Cosine": lambda: _figure(_mean(step.cosine for step in steps)),
        "Encode ms": lambda: _ms(_mean(step.encode_seconds for step in steps)),
        "Decode ms": lambda: _ms(_mean(step.decode_seconds for step in steps)),
        "Not finite": lambda: f"{sum(step.nonfinite for step in steps):,}",
    }
    return figures[title]() if title in figures else ""
