"""Show the estimated training step of each compressor: table, notes, JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tensorcomp._formatting import bits_text, bytes_text, counted, milliseconds, printable, scaled
from tensorcomp._tables import Column, Table

if TYPE_CHECKING:
    from tensorcomp.gradients.cost_model.estimate import Estimate, EstimateRow

_UNITS = ("bit/s", "kbit/s", "Mbit/s", "Gbit/s")


def bandwidth_text(bits: float) -> str:
    """Return bits per second in the largest unit that fits.

    Examples
    --------
    >>> bandwidth_text(1e9), bandwidth_text(2.5e7)
    ('1.00 Gbit/s', '25.0 Mbit/s')
    """
    return scaled(bits, _UNITS)


def _break_even(row: EstimateRow) -> float | None:
    return None if math.isinf(row.break_even) else row.break_even


def _pays_below(bits: float) -> str:
    if math.isinf(bits):
        return "any"
    return bandwidth_text(bits) if bits else "never"


_COLUMNS = (
    Column("Compressor", "compressor", lambda row: row.text, printable, left=True),
    Column("Bits", "bits_per_parameter", lambda row: row.bits, bits_text),
    Column("Error", "rel_l2", lambda row: row.error, "{:.3g}".format, spare=2),
    Column("Sent", "bytes_sent", lambda row: row.bytes_sent, lambda size: bytes_text(round(size))),
    Column("Encode ms", "encode_seconds", lambda row: row.encode, milliseconds, spare=1),
    Column("Exchange ms", "communicate_seconds", lambda row: row.communicate, milliseconds),
    Column("Decode ms", "decode_seconds", lambda row: row.decode, milliseconds, spare=1),
    Column("Step ms", "step_seconds", lambda row: row.step, milliseconds),
    Column("Speed-up", "speed_up", lambda row: row.speed_up, "{:.2f}×".format),
    Column("", "break_even_bits_per_second", _break_even),
    Column(
        "Pays below",
        "",
        lambda row: None if row.text == "dense" else row.break_even,
        _pays_below,
    ),
)


def estimate_table(found: Estimate) -> Table:
    """Return a table with a row for each compressor, dense gradients first.

    For programs, a break-even bandwidth of None is none: the compressor always pays.
    """
    return Table(_COLUMNS, found.rows)


def estimate_json(found: Estimate) -> dict[str, Any]:
    """Return all figures as JSON values, whose keys are a public interface.

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
        "compressors": estimate_table(found).records(),
    }


def estimate_notes(found: Estimate) -> Iterator[str]:
    """Yield notes on the setting, the columns, and whether compression pays."""
    backward = f", {milliseconds(found.backward)} ms of backward pass" if found.backward else ""
    latency = f" and {milliseconds(found.latency)} ms a message" if found.latency else ""
    yield (
        f"{counted(found.parameters, 'parameter')}, {counted(found.world, 'rank')}, lines of "
        f"{bandwidth_text(found.line)}{latency}{backward}"
    )
    yield (
        "Bits, error and time of coding are measured here, on one core and random gradients; times "
        "of exchange are a model's: latency and bytes over bandwidth, 5 % more for TCP/IP"
    )
    yield (
        "Bits: per parameter. Error: ‖g − ĝ‖₂ / ‖g‖₂ of a step's payload, which error feedback "
        "makes good later; above 1 a compressor is not called the fastest. Sent: by each rank in a "
        "step. Pays below: the bandwidth at which dense is as fast"
    )
    yield "Speed is that of steps; how many of them an accuracy takes is another question"
    yield _verdict(found)


def _verdict(found: Estimate) -> str:
    best, fastest = _best(found), found.fastest
    dense = f"{milliseconds(found.dense.step)} ms with dense gradients"
    if best is not found.dense:
        return (
            f"Compression pays: a step takes {milliseconds(best.step)} ms with "
            f"{printable(best.text)}, {dense}"
        )
    if fastest is None:
        return f"A step takes {dense}"
    return (
        f"Compression does not pay here: a step takes {dense}, "
        f"{milliseconds(fastest.step)} ms with {printable(fastest.text)}, the fastest compressor"
    )


def _best(found: Estimate) -> EstimateRow:
    fastest = found.fastest
    return fastest if fastest is not None and fastest.pays else found.dense
