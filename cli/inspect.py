"""``tensorcomp inspect``."""

from __future__ import annotations

import time
from pathlib import Path

import click

from .options.common import json, source


@click.command()
@source
@json
def inspect(source: Path, *, json: bool) -> None:
    """Show the tensors of a checkpoint.

    INPUT is a file or a folder, compressed or not; nothing is decoded. Of each tensor the table has
    name, shape, type, role, bytes, bits stored per weight, ratio, tree, and why that tree. It is
    folded to the width of a terminal; in a pipe each tensor is one line.

    \b
    Example:
      tensorcomp inspect model.tc.safetensors
    """  # noqa: D301 - \b keeps the example's lines as they are
    from tensorcomp._formatting import printable
    from tensorcomp.reports.as_json import to_json
    from tensorcomp.reports.pruned import pruning_line
    from tensorcomp.reports.tables import tensor_table, totals

    from .output import show, show_json, stdout_width
    from .summaries import summarise

    begun = time.perf_counter()
    summary = summarise(source)
    if json:
        show_json(to_json(summary, time.perf_counter() - begun))
        return
    table = tensor_table(summary, stdout_width())
    whole = [f"{printable(str(source))}: {totals(summary)}", *pruning_line(summary)]
    show([*table, *([""] if table else []), *whole])
