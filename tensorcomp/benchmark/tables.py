"""Strategies on a checkpoint as lines of text, Markdown, comma-separated values, and JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tensorcomp._formatting import (
    bits_text,
    bytes_text,
    cells,
    in_columns,
    printable,
    three_digits,
)
from tensorcomp._table_formats import csv_lines, markdown_lines
from tensorcomp.benchmark.figures import Benchmark, StrategyRow
from tensorcomp.metrics.gaussian_limit import FORMULA, Limit
from tensorcomp.reports.tables import fitted

_COLUMNS = (
    "Strategy",
    "Bits",
    "Ratio",
    "SNR dB",
    "Lowest",
    "rel-L2",
    "Gap",
    "Encode M/s",
    "Decode M/s",
    "Refused",
    "Tree",
)
_NARROW = (0, 1, 2, 3, 4, 6, 7, 8)  # of these columns, where all do not fit
_RIGHT = range(1, 10)
_CSV = (
    "strategy",
    "family",
    "tree",
    "peer",
    "bits_per_weight",
    "ratio",
    "snr_db",
    "lowest_snr_db",
    "rel_l2",
    "gap_bits",
    "encode_weights_per_second",
    "decode_weights_per_second",
    "lossless_tensors",
    "problem",
)


def benchmark_table(found: Benchmark, width: int | None = None) -> list[str]:
    """Return a table of all strategies, the other libraries' formats last.

    Parameters
    ----------
    found : Benchmark
    width : int, optional
        Columns to keep within: labels are folded, and trees and some figures are left out.
    """
    rows = _text_rows(found)
    lines = in_columns(rows, right=_RIGHT)
    if width is None or max(map(cells, lines)) <= width:
        return lines
    narrow = [[row[column] for column in _NARROW] for row in rows]
    blocks = fitted(narrow, width, right=range(1, len(_NARROW)))
    return [line for block in blocks for line in block]


def benchmark_markdown(found: Benchmark) -> list[str]:
    """Return the table of all strategies, and what its columns are, in Markdown."""
    table = markdown_lines(_text_rows(found), right=_RIGHT)
    return [*table, "", *(f"- {note}" for note in benchmark_notes(found))]


def benchmark_csv(found: Benchmark) -> list[str]:
    """Return a line of comma-separated values for each strategy; an SNR that is empty is exact."""
    return csv_lines(_CSV, [list(_values(row).values()) for row in found.rows])


def benchmark_json(found: Benchmark, seconds: float) -> dict[str, Any]:
    """Return all figures as JSON values; the keys are part of the command line's interface.

    Parameters
    ----------
    found : Benchmark
    seconds : float
        How long it took.

    Returns
    -------
    dict
        Figures of the checkpoint; ``limit``, points (bits per weight, SNR in dB) of R(D) for a
        variance of each row × column, and ``tensor_limit``, for one of each tensor; and
        ``strategies``, one object a row of the table. An SNR and a gap are null if all is exact;
        all figures are if there is a ``problem``. An SNR that is infinite is the text ``-inf``.
    """
    return {
        "input": found.name,
        "input_bytes": found.input_bytes,
        "weights": found.weights,
        "profile": found.profile,
        "lossy_weights": found.lossy_weights,
        "measured_weights": found.measured_weights,
        "lossless_bits_per_weight": found.fixed_bits,
        "threads": found.threads,
        "seconds": round(seconds, 6),
        "limit": _points(found.limit),
        "tensor_limit": _points(found.tensor_limit),
        "strategies": [
            {key: _json_value(value) for key, value in _values(row).items()} for row in found.rows
        ],
    }


def _points(limit: Limit) -> list[dict[str, float]]:
    return [{"bits_per_weight": limit.rate(snr), "snr_db": snr} for snr in range(0, 61, 2)]


def benchmark_notes(found: Benchmark) -> Iterator[str]:
    """Yield a few lines that say what was measured, and what the columns are."""
    lossy = _millions(found.lossy_weights)
    measured = f"all {lossy}"
    if found.sampled:
        measured = f"{_millions(found.measured_weights)} of the {lossy}"
    yield (
        f"{printable(found.name)}: {_millions(found.weights)} weights in {found.tensors:,} tensors,"
        f" {bytes_text(found.input_bytes)}; measured on {measured} weights that may lose something"
        f" under profile {printable(found.profile)}"
    )
    if found.limit.other_weights:
        yield (
            "Bits: for each weight of the checkpoint, all bytes of the tensors counted; "
            f"{found.fixed_bits:.3f} of them are for the tensors that always stay lossless"
        )
    else:
        yield "Bits: for each weight of the checkpoint, all bytes of the tensors counted"
    yield (
        "SNR: all weights that may lose something together, and that of the tensor that loses most"
    )
    yield (
        f"Gap: bits above {FORMULA}, of Gaussian weights whose variance is that of their row × "
        "that of their column / that of their tensor"
    )
    yield (
        f"Speeds: millions of weights a second, {found.threads} "
        f"thread{'' if found.threads == 1 else 's'}"
    )
    if any(row.peer for row in found.rows):
        yield "*: a format of another library, without the headers of its files"
    if any(row.refused for row in found.rows):
        yield "Refused: tensors coded losslessly, because the codec cannot code them in fewer bytes"


def _millions(weights: float) -> str:
    return f"{three_digits(weights / 1e6)} M" if weights >= 1e6 else f"{weights:,.0f}"


def _text_rows(found: Benchmark) -> list[list[str]]:
    rows = [[*_COLUMNS]]
    for row in found.rows:
        label = f"{printable(row.label)}{' *' if row.peer else ''}"
        if row.problem:
            rows.append([label, *["-"] * 9, f"{printable(row.tree)}: {printable(row.problem)}"])
            continue
        snr = row.lowest_snr_db
        rows.append(
            [
                label,
                bits_text(row.bits),
                f"{row.ratio:.2f}",
                _snr(row.snr_db),
                "-" if snr is None else f"{snr:.2f}",
                f"{row.rel_l2:.3g}",
                bits_text(row.gap),
                three_digits(row.encode_speed / 1e6),
                three_digits(row.decode_speed / 1e6),
                str(row.refused or "-"),
                printable(row.tree or "the lossless planner's"),
            ]
        )
    return rows


def _snr(snr: float | None) -> str:
    return "exact" if snr is None else f"{snr:.2f}"


def _values(row: StrategyRow) -> dict[str, str | int | float | None]:
    """Return the figures of a row by their names in files."""
    failed = bool(row.problem)
    figures = (
        row.bits,
        row.ratio,
        row.snr_db,
        row.lowest_snr_db,
        row.rel_l2,
        row.gap,
        row.encode_speed,
        row.decode_speed,
        row.refused,
    )
    return {
        "strategy": row.label,
        "family": row.family,
        "tree": row.tree,
        "peer": row.peer,
        **dict(zip(_CSV[4:-1], (None if failed else value for value in figures), strict=True)),
        "problem": row.problem or None,
    }


def _json_value(value: str | int | float | None) -> str | int | float | None:
    return str(value) if isinstance(value, float) and math.isinf(value) else value
