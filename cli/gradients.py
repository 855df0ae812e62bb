"""``tensorcomp gradients``: what compressing gradients would save."""

from __future__ import annotations

import math
import re

import click

from .options.common import forms, refuse_two_forms

_NUMBER = r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+)"
_COUNT = re.compile(rf"{_NUMBER}\s*([kmb]?)", re.IGNORECASE)
_LINE = re.compile(rf"{_NUMBER}\s*([kmgt]?)(?:bit|bps)(?:/s)?", re.IGNORECASE)
_TIME = re.compile(rf"{_NUMBER}\s*(us|µs|ms|s)")
_COUNTS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9}
_LINES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_TIMES = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_MOST = 10**15


def count(text: str) -> int:
    """Take a number of parameters: ``25e6``, ``25M``, ``7B``."""
    match = _COUNT.fullmatch(text.strip())
    number = float(match[1]) * _COUNTS[match[2].lower()] if match else math.nan
    if not 1 <= number <= _MOST:
        raise click.BadParameter(f"{text!r} is no number of parameters, such as 25e6 or 25M")
    return round(number)


def line_rate(text: str) -> float:
    """Take the bits per second of a line: ``100mbit``, ``1gbit``, ``2.5 Gbit/s``."""
    match = _LINE.fullmatch(text.strip())
    rate = float(match[1]) * _LINES[match[2].lower()] if match else math.nan
    if not 0 < rate < math.inf:
        raise click.BadParameter(f"{text!r} is no bandwidth, such as 100mbit or 1gbit")
    return rate


def duration(text: str) -> float:
    """Take a time, and return seconds: ``50us``, ``0.1ms``, ``1s``."""
    match = _TIME.fullmatch(text.strip())
    seconds = float(match[1]) * _TIMES[match[2]] if match else math.nan
    if not seconds < math.inf:
        raise click.BadParameter(f"{text!r} is no time, such as 0.1ms or 50us")
    return seconds


@click.group(no_args_is_help=False)
def gradients() -> None:
    """Compression of gradients in distributed training."""


@gradients.command()
@click.option(
    "--parameters",
    type=count,
    required=True,
    metavar="N",
    help="Parameters of the model: 25e6, 25M, 7B.",
)
@click.option(
    "--world",
    type=click.IntRange(min=2),
    required=True,
    metavar="W",
    help="Ranks that train together.",
)
@click.option(
    "--bandwidth",
    type=line_rate,
    required=True,
    metavar="RATE",
    help="Of each rank's line: 100mbit, 1gbit.",
)
@click.option(
    "--latency",
    type=duration,
    default="0s",
    metavar="TIME",
    help="Of a message: 50us, 0.1ms.",
)
@click.option(
    "--compressor",
    "compressors",
    multiple=True,
    metavar="TEXT",
    help="Estimate this one; may be repeated. A few by default.",
)
@click.option(
    "--backward-ms",
    type=click.FloatRange(min=0.0),
    default=0.0,
    metavar="MS",
    help="Of the backward pass, which hides exchanges.",
)
@forms
def estimate(
    *,
    parameters: int,
    world: int,
    bandwidth: float,
    latency: float,
    compressors: tuple[str, ...],
    backward_ms: float,
    json: bool,
    csv: bool,
    markdown: bool,
) -> None:
    """Say what a training step takes under each compressor, and below which bandwidth it pays.

    Bits and the time of coding are measured on a sample of random gradients, on one core; bytes
    and the time of the exchange follow from a model of all-reduce, all-gather and all-to-all on
    equal lines. Where compression does not pay, the last line says so.

    \b
    Examples:
      tensorcomp gradients estimate --parameters 25e6 --world 8 --bandwidth 1gbit
      tensorcomp gradients estimate --parameters 11M --world 4 --bandwidth 100mbit \\
          --backward-ms 300 --compressor 'topk(0.01, values=affine(8))' --compressor int8
    """  # noqa: D301 - \b keeps the example's lines as they are
    refuse_two_forms(json=json, csv=csv, markdown=markdown)
    if not backward_ms < math.inf:
        raise click.BadParameter(f"--backward-ms is {backward_ms}, not a finite time")
    from tensorcomp.gradients.cost_model.estimate import RECIPES
    from tensorcomp.gradients.cost_model.estimate import estimate as estimated
    from tensorcomp.reports import estimate_tables as tables

    from .output import show, show_json, stdout_width
    from .progress import progress

    with progress("measuring"):
        found = estimated(
            parameters,
            world,
            bandwidth,
            latency=latency,
            backward=backward_ms / 1e3,
            compressors=compressors or RECIPES,
        )
    if json:
        show_json(tables.estimate_json(found))
    elif csv:
        show(tables.estimate_csv(found))
    elif markdown:
        show(tables.estimate_markdown(found))
    else:
        table = tables.estimate_table(found, stdout_width())
        notes = (*tables.estimate_notes(found), tables.estimate_verdict(found))
        show([*table, "", *notes])
