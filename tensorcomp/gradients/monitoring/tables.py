"""Show the cost of gradient compression: totals and a table of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tensorcomp._formatting import (
    bits_text,
    bytes_text,
    counted,
    milliseconds,
    printable,
    ratio_text,
)
from tensorcomp._tables import Column, Table

if TYPE_CHECKING:
    from tensorcomp.gradients.monitoring.metrics import History, StepMetrics, TensorMetrics


class _Row(NamedTuple):
    """The metrics of a tensor, or of all of them, in some steps, and the last of these."""

    step: int
    metrics: Sequence[Any]  # `TensorMetrics`, or `StepMetrics` of all


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _mean_of(figure: str) -> Callable[[Any], float | None]:
    """Return what takes a row, and returns the mean of a figure that is an attribute."""
    return lambda row: _mean(getattr(metrics, figure) for metrics in row.metrics)


def _last(figure: str) -> Callable[[Any], Any]:
    return lambda row: getattr(row.metrics[-1], figure)


def _payload(row: _Row) -> int:
    return round(_mean_of("payload_bytes")(row) or 0)


def _rel_l2(row: _Row) -> float | None:
    return _mean(None if one.error is None else one.error.rel_l2 for one in row.metrics)


def _nonfinite(row: _Row) -> int:
    return sum(metrics.nonfinite for metrics in row.metrics)


_figure, _count = "{:.4g}".format, "{:,}".format
_COLUMNS = (
    Column("", "step", lambda row: row.step),
    Column("Tensor", "name", _last("name"), printable, left=True),
    Column("Compressor", "compressor", _last("compressor"), printable, left=True, spare=7),
    Column("Elements", "elements", _last("elements"), _count, spare=6),
    Column("Raw", "raw_bytes", _last("raw_bytes"), bytes_text, spare=5),
    Column("Payload", "payload_bytes", _payload, bytes_text),
    Column("Bits", "", _mean_of("bits"), bits_text, spare=2),
    Column("Density", "density", _mean_of("density"), _figure, optional=True),
    Column("Residual", "residual_ratio", _mean_of("residual_ratio"), _figure, optional=True),
    Column("Cosine", "cosine", _mean_of("cosine"), _figure, optional=True),
    Column("Error", "rel_l2", _rel_l2, _figure, optional=True, spare=1),
    Column("Achieved", "achieved", _mean_of("achieved"), _figure, optional=True),
    Column("", "nonfinite", _nonfinite),
    Column("Encode ms", "encode_seconds", _mean_of("encode_seconds"), milliseconds, spare=3),
    Column("Decode ms", "decode_seconds", _mean_of("decode_seconds"), milliseconds, spare=4),
    Column("Not finite", "", _nonfinite, _count, optional=True),
)
_OF_TENSORS = ("step", "name", "compressor", "rel_l2", "achieved", "nonfinite")  # not of all


def gradient_table(steps: Iterable[StepMetrics]) -> Table:
    """Return a table of the tensors of the last step.

    Their figures are averaged over all steps.
    """
    kept = list(steps)
    if not kept or not kept[-1].tensors:
        return Table(_COLUMNS, ())
    last = kept[-1]
    by_name: dict[str, list[TensorMetrics]] = {tensor.name: [] for tensor in last.tensors}
    for step in kept:
        for tensor in step.tensors:
            by_name.get(tensor.name, []).append(tensor)

    together = _Row(last.step, kept)
    keys = {column.key or column.title: column.value for column in _COLUMNS}
    total = {key: value(together) for key, value in keys.items() if key not in _OF_TENSORS}
    rows = [_Row(last.step, metrics) for metrics in by_name.values()]
    return Table(_COLUMNS, rows, {"name": "all", **total})


def gradient_log(steps: Iterable[StepMetrics]) -> Table:
    """Return a table of each tensor in each step.

    Figures that were not measured are empty for programs.
    """
    rows = [_Row(step.step, [tensor]) for step in steps for tensor in step.tensors]
    return Table(_COLUMNS, rows)


def gradient_totals(history: History) -> list[str]:
    """Return what there is to say of all steps together, a line each."""
    if not history.count:
        return ["no step yet"]
    payload, framed = history.payload_bytes, history.framed_bytes
    smaller = f", {ratio_text(history.raw_bytes / framed)}× smaller" if framed else ""
    kept = list(history)
    encode, communicate, decode = (
        milliseconds(_mean(getattr(step, f"{part}_seconds") for step in kept) or 0.0)
        for part in ("encode", "communicate", "decode")
    )
    lines = [
        f"{counted(history.count, 'step')}: gradients {bytes_text(history.raw_bytes)}, payloads "
        f"{bytes_text(payload)}, framed {bytes_text(framed)}{smaller}",
        f"sent by this worker: {bytes_text(history.wire_bytes)} by formula",
        f"a step, mean of the last {len(kept):,}: encode {encode} ms, communicate {communicate} "
        f"ms, decode {decode} ms",
    ]
    if history.skipped:
        lines.append(
            f"{counted(history.skipped, 'step')} skipped: a value was not finite on some worker"
        )
    return lines
