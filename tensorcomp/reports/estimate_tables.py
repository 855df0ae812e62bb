"""What a training step takes under each compressor, as text, Markdown, CSV and JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tensorcomp._formatting import bits_text, bytes_text, cells, counted, in_columns, printable
from tensorcomp._formatting import three_digits as digits
from tensorcomp._table_formats import csv_lines, markdown_lines
from tensorcomp.reports.tables import fitted

if TYPE_CHECKING:
    from tensorcomp.gradients.cost_model.estimate import Estimate, EstimateRow

_COLUMNS = (
    *("Compressor", "Bits", "Error", "Sent", "Encode ms", "Exchange ms", "Decode ms", "Step ms"),
    *("Speed-up", "Pays below"),
)
_NARROW = (0, 1, 3, 5, 7, 8, 9)  # of these columns, where all do not fit
_RIGHT = range(1, len(_COLUMNS))
_CSV = (
    *("compressor", "bits_per_parameter", "rel_l2", "bytes_sent", "encode_seconds"),
    *("communicate_seconds", "decode_seconds", "step_seconds", "speed_up"),
    "break_even_bits_per_second",
)
_UNITS = ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s"))


def estimate_table(found: Estimate, width: int | None = None) -> list[str]:
    """Return a table with a line for each compressor, dense gradients first.

    Parameters
    ----------
    found : Estimate
    width : int, optional
        Columns to keep within: texts are folded, and some figures are left out.
    """
    rows = _text_rows(found)
    lines = in_columns(rows, right=_RIGHT)
    if width is None or max(map(cells, lines)) <= width:
        return lines
    narrow = [[row[column] for column in _NARROW] for row in rows]
    blocks = fitted(narrow, width, right=range(1, len(_NARROW)))
    return [line for block in blocks for line in block]


def estimate_markdown(found: Estimate) -> list[str]:
    """Return the table, and what it says, in Markdown."""
    notes = (f"- {line}" for line in (*estimate_notes(found), estimate_verdict(found)))
    return [*markdown_lines(_text_rows(found), right=_RIGHT), "", *notes]


def estimate_csv(found: Estimate) -> list[str]:
    """Return a line of comma-separated values for each compressor.

    A break-even bandwidth that is empty is none: the compressor always pays.
    """
    return csv_lines(_CSV, [list(_values(row).values()) for row in found.rows])


def estimate_json(found: Estimate) -> dict[str, Any]:
    """Return all figures as JSON values; the keys are part of the command line's interface.

    Parameters
    ----------
    found : Estimate

    Returns
    -------
    dict
        What was asked, ``compressors``, one object a row of the table, and ``pays``: whether any of
        them is worth it, and ``fastest``: the compressor's text, ``"dense"`` if none is. A
        break-even bandwidth of null is none: the compressor always pays.
    """
    best = _best(found)
    return {
        "parameters": found.parameters,
        "world": found.world,
        "bandwidth_bits_per_second": found.line,
        "latency_seconds": found.latency,
        "backward_seconds": found.backward,
        "pays": best is not found.dense,
        "fastest": best.text,
        "compressors": [_values(row) for row in found.rows],
    }


def estimate_notes(found: Estimate) -> Iterator[str]:
    """Yield a few lines that say what was asked, what was measured, and what the columns are."""
    backward = f", {digits(1e3 * found.backward)} ms of backward pass" if found.backward else ""
    latency = f" and {digits(1e3 * found.latency)} ms a message" if found.latency else ""
    yield (
        f"{found.parameters:,} parameters, {counted(found.world, 'rank')}, lines of "
        f"{bandwidth_text(found.line)}{latency}{backward}"
    )
    yield (
        "Bits, error and time of coding are measured here, on one core and random gradients; times "
        "of exchange are a model's: latency and bytes over bandwidth, 5 % more for TCP/IP"
    )
    yield (
        "Bits: a parameter. Error: ‖g − ĝ‖₂ / ‖g‖₂ of a step's payload, which error feedback makes "
        "good later. Sent: by each rank in a step. Pays below: the bandwidth at which dense is as "
        "fast"
    )
    yield "Speed is that of steps; how many of them an accuracy takes is another question"


def estimate_verdict(found: Estimate) -> str:
    """Return a sentence that says whether compression pays."""
    best, fastest = _best(found), found.fastest
    dense = digits(1e3 * found.dense.step)
    if best is not found.dense:
        return (
            f"Compression pays: a step takes {digits(1e3 * best.step)} ms with "
            f"{printable(best.text)}, {dense} ms with dense gradients"
        )
    if fastest is None:
        return f"A step takes {dense} ms with dense gradients"
    return (
        f"Compression does not pay here: a step takes {dense} ms with dense gradients, "
        f"{digits(1e3 * fastest.step)} ms with {printable(fastest.text)}, the fastest compressor"
    )


def bandwidth_text(bits: float) -> str:
    """Return bits per second in the largest unit that fits.

    Examples
    --------
    >>> bandwidth_text(1e9), bandwidth_text(2.5e7)
    ('1.00 Gbit/s', '25.0 Mbit/s')
    """
    scale, unit = next((pair for pair in _UNITS if bits >= pair[0]), _UNITS[-1])
    return f"{digits(bits / scale)} {unit}"


def _best(found: Estimate) -> EstimateRow:
    fastest = found.fastest
    return fastest if fastest is not None and fastest.pays else found.dense


def _text_rows(found: Estimate) -> list[list[str]]:
    rows = [[*_COLUMNS]]
    for row in found.rows:
        seconds = (row.encode, row.communicate, row.decode, row.step)
        rows.append(
            [
                printable(row.text),
                bits_text(row.bits),
                f"{row.error:.3g}",
                bytes_text(round(row.bytes_sent)),
                *(digits(1e3 * part) for part in seconds),
                f"{row.speed_up:.2f}×",
                "-" if row is found.dense else _below(row.break_even),
            ]
        )
    return rows


def _below(bits: float) -> str:
    if math.isinf(bits):
        return "any"
    return bandwidth_text(bits) if bits else "never"


def _values(row: EstimateRow) -> dict[str, str | float | None]:
    """Return the figures of a row by their names in files."""
    figures = (
        *(row.text, row.bits, row.error, row.bytes_sent, row.encode, row.communicate),
        *(row.decode, row.step, row.speed_up),
        None if math.isinf(row.break_even) else row.break_even,
    )
    return dict(zip(_CSV, figures, strict=True))
