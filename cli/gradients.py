"""``tensorcomp gradients``: what compressing gradients would save."""

from __future__ import annotations

import math
from typing import Any

import click

from .command import Command, Result
from .options import all_forms, forced_report, option
from .quantity import count


@click.group(no_args_is_help=False)
def gradients() -> None:
    """Compression of gradients in distributed training."""


@gradients.command(cls=Command)
@option("--parameters N", "Parameters of the model: 25e6, 25M, 7B.", type=count, required=True)
@option("--world W", "Ranks that train together.", type=click.IntRange(min=2), required=True)
@option("--bandwidth RATE", "Of each rank's line: 100mbit, 1gbit.", dest="line", required=True)
@option("--latency TIME", "Of a message: 50us, 0.1ms.", default="0s")
@option(
    "--compressor TEXT",
    "Estimate this one; may be repeated. A few by default.",
    dest="compressors",
    multiple=True,
)
@option(
    "--backward-ms MS",
    "Of the backward pass, which hides exchanges.",
    type=click.FloatRange(min=0.0),
    default=0.0,
)
@forced_report
@all_forms
def estimate(*, compressors: tuple[str, ...], backward_ms: float, **asked: Any) -> Result:
    """Estimate the time of a training step under each compressor.

    The table says below which bandwidth a compressor pays. Bits and the time of coding are measured
    on a sample of random gradients, on one core; bytes and the time of the exchange follow from a
    model of all-reduce, all-gather and all-to-all on equal lines. Where compression does not pay,
    the last line says so.

    \b
    Examples:
      tensorcomp gradients estimate --parameters 25e6 --world 8 --bandwidth 1gbit
      tensorcomp gradients estimate --parameters 11M --world 4 --bandwidth 100mbit \\
          --backward-ms 300 --compressor 'topk(0.01, values=affine(8))' --compressor int8
    """  # noqa: D301 - \b keeps the example's lines as they are
    if not backward_ms < math.inf:
        raise click.UsageError(f"--backward-ms is {backward_ms}, not a finite time")
    from tensorcomp.gradients.cost_model.estimate import RECIPES
    from tensorcomp.gradients.cost_model.estimate import estimate as estimated
    from tensorcomp.reports import estimate_tables as tables

    from .progress import progress

    with progress("measuring"):
        found = estimated(**asked, backward=backward_ms / 1e3, compressors=compressors or RECIPES)
    table, notes = tables.estimate_table(found), tuple(tables.estimate_notes(found))
    return Result(lambda: tables.estimate_json(found), table, notes, report=lambda: found)
