"""``tensorcomp gradients``: what compressing gradients would save."""

from __future__ import annotations

import math
import re
from typing import Annotated, Optional

import typer

from .options import Csv, Json, Markdown

gradients = typer.Typer(
    help="Compression of gradients in distributed training.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

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
        raise typer.BadParameter(f"{text!r} is no number of parameters, such as 25e6 or 25M")
    return round(number)


def line_rate(text: str) -> float:
    """Take the bits per second of a line: ``100mbit``, ``1gbit``, ``2.5 Gbit/s``."""
    match = _LINE.fullmatch(text.strip())
    rate = float(match[1]) * _LINES[match[2].lower()] if match else math.nan
    if not 0 < rate < math.inf:
        raise typer.BadParameter(f"{text!r} is no bandwidth, such as 100mbit or 1gbit")
    return rate


def duration(text: str) -> float:
    """Take a time, and return seconds: ``50us``, ``0.1ms``, ``1s``."""
    match = _TIME.fullmatch(text.strip())
    seconds = float(match[1]) * _TIMES[match[2]] if match else math.nan
    if not seconds < math.inf:
        raise typer.BadParameter(f"{text!r} is no time, such as 0.1ms or 50us")
    return seconds


@gradients.callback()
def _root() -> None:
    """Compression of gradients in distributed training."""


@gradients.command()
def estimate(
    *,
    parameters: Annotated[
        int,
        typer.Option(parser=count, metavar="N", help="Parameters of the model: 25e6, 25M, 7B."),
    ],
    world: Annotated[int, typer.Option(min=2, metavar="W", help="Ranks that train together.")],
    bandwidth: Annotated[
        float,
        typer.Option(parser=line_rate, metavar="RATE", help="Of each rank's line: 100mbit, 1gbit."),
    ],
    latency: Annotated[
        float,
        typer.Option(parser=duration, metavar="TIME", help="Of a message: 50us, 0.1ms."),
    ] = "0s",  # type: ignore[assignment] # typer parses it
    compressor: Annotated[
        Optional[list[str]],  # noqa: UP045 - typer reads it at run time
        typer.Option(metavar="TEXT", help="Estimate this one; may be repeated. A few by default."),
    ] = None,
    backward_ms: Annotated[
        float,
        typer.Option(min=0.0, metavar="MS", help="Of the backward pass, which hides exchanges."),
    ] = 0.0,
    json: Json = False,
    csv: Csv = False,
    markdown: Markdown = False,
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
    if json + csv + markdown > 1:
        raise typer.BadParameter("--json, --csv and --markdown exclude each other")
    if not backward_ms < math.inf:
        raise typer.BadParameter(f"--backward-ms is {backward_ms}, not a finite time")
    from tensorcomp.gradients.estimate import RECIPES
    from tensorcomp.gradients.estimate import estimate as estimated
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
            compressors=compressor or RECIPES,
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
