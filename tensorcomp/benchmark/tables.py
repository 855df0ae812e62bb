"""Show what strategies make of a checkpoint: the table, its legend, JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tensorcomp._formatting import bits_text, bytes_text, counted, printable, three_digits
from tensorcomp._tables import Column, Table
from tensorcomp.benchmark.figures import Benchmark, millions
from tensorcomp.metrics.gaussian_limit import FORMULA


def _speed(weights: float) -> str:
    return three_digits(weights / 1e6)


_count = "{:,}".format
_COLUMNS = (
    Column("Strategy", "strategy", lambda row: row.label, printable, left=True),
    Column("", "family", lambda row: row.family),
    Column("", "tree", lambda row: row.tree),
    Column("Bits", "bits_per_weight", lambda row: row.bits, bits_text),
    Column("Ratio", "ratio", lambda row: row.ratio, "{:,.2f}".format),
    Column("SNR dB", "snr_db", lambda row: row.snr_db, "{:z.2f}".format, none="exact"),
    Column("Lowest", "lowest_snr_db", lambda row: row.lowest_snr_db, "{:z.2f}".format),
    Column("rel-L2", "rel_l2", lambda row: row.rel_l2, "{:.3g}".format, spare=1),
    Column("Loss", "predicted_loss", lambda row: row.loss, "{:.3g}".format, optional=True),
    Column("Gap", "gap_bits", lambda row: row.gap, bits_text),
    Column("Encode M/s", "encode_weights_per_second", lambda row: row.encode_speed, _speed),
    Column("Decode M/s", "decode_weights_per_second", lambda row: row.decode_speed, _speed),
    Column("Refused", "lossless_tensors", lambda row: row.refused, _count, optional=True, spare=2),
    Column("Tree", "", lambda row: row.tree or "the planner's", printable, left=True, spare=3),
)


def benchmark_table(found: Benchmark) -> Table:
    """Return the table of all strategies; an SNR of None is exact."""
    return Table(_COLUMNS, found.rows)


def benchmark_json(found: Benchmark) -> dict[str, Any]:
    """Return all figures as JSON values, whose keys are a public interface.

    Returns
    -------
    dict
        Figures of the checkpoint; ``limit`` and ``tensor_limit``, points (bits per weight, SNR in
        dB) of R(D) for one variance of each tensor; and ``strategies``, one object a row of the
        table. An SNR and a gap are null if all is exact. An SNR that is infinite is the text
        ``-inf``.
    """
    limit = [{"bits_per_weight": found.limit.rate(snr), "snr_db": snr} for snr in range(0, 61, 2)]
    return {
        "input": found.name,
        "input_bytes": found.input_bytes,
        "weights": found.weights,
        "profile": found.profile,
        "lossy_weights": found.lossy_weights,
        "measured_weights": found.measured_weights,
        "lossless_bits_per_weight": found.fixed_bits,
        "threads": found.threads,
        "limit": limit,
        "tensor_limit": limit,
        "strategies": benchmark_table(found).records(),
    }


def benchmark_notes(found: Benchmark) -> Iterator[str]:
    """Yield lines that say what was measured, and what the columns are."""
    lossy = millions(found.lossy_weights)
    measured = f"{millions(found.measured_weights)} of the" if found.sampled else "all"
    yield (
        f"{printable(found.name)}: {millions(found.weights)} weights in "
        f"{counted(found.tensors, 'tensor')}, {bytes_text(found.input_bytes)}; measured on "
        f"{measured} {lossy} weights that may lose something under profile "
        f"{printable(found.profile)}"
    )
    fixed = ""
    if found.limit.other_weights:
        fixed = f"; {found.fixed_bits:.3f} of them are for the tensors that always stay lossless"
    yield f"Bits: per weight of the checkpoint, all bytes of the tensors counted{fixed}"
    yield ("SNR: all weights that may lose something together; Lowest: the tensor that loses most")
    yield (
        f"Gap: bits above {FORMULA}, of Gaussian weights of one variance per tensor; below 0 where "
        "a codec uses that rows or columns differ in scale, or weights are not Gaussian"
    )
    if any(row.loss is not None for row in found.rows):
        yield "Loss: what errors of tensors with statistics are predicted to add, in nats a term"
    yield f"Speeds: millions of weights per second, {counted(found.threads, 'thread')}"
    if any(row.refused for row in found.rows):
        yield "Refused: tensors coded losslessly, because the codec cannot code them in fewer bytes"
