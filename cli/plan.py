"""``tensorcomp plan``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from .options.budget import budget_of, effort_option, lossy_options
from .options.common import force, json, output, source, threads
from .options.pruning import prune_options, pruning_of


@click.command()
@source
@output("FILE", "Save the plan as JSON.")
@lossy_options
@prune_options
@effort_option
@threads
@force
@json
def plan(source: Path, out: Path | None, *, force: bool, json: bool, **options: Any) -> None:
    """Show what compress would do with each tensor, and save it to be edited and obeyed.

    Trees are tried on samples; nothing is compressed. The saved plan holds for each tensor its
    tree, its bound, the predicted bytes and error, and why. Edit a tree or a bound, and give the
    file to tensorcomp compress --plan; what is pruned first must be said to it again.

    \b
    Example:
      tensorcomp plan model.safetensors --bits-per-weight 4 -o plan.json
      tensorcomp compress model.safetensors --plan plan.json
    """  # noqa: D301 - \b keeps the example's lines as they are
    from tensorcomp._formatting import printable
    from tensorcomp.api import plan as forecasting
    from tensorcomp.io.atomic import atomic_file, refuse_existing
    from tensorcomp.reports.plan_tables import plan_table, plan_totals
    from tensorcomp.reports.pruned import planned_line

    from .output import show, show_text, stdout_width

    begun = time.perf_counter()
    if out is not None:
        refuse_existing(out, force=force)
    budget, pruning = budget_of(options), pruning_of(options)
    forecast = forecasting.plan(source, budget=budget, prune=pruning, **options)
    text = forecast.to_json()
    if out is not None:
        with atomic_file(out, force=force) as file:
            file.write(text.encode())
    if json:
        show_text(text)
        return
    seconds = time.perf_counter() - begun
    saved = "" if out is None else f"; saved as {printable(str(out))}"
    show(
        [
            *plan_table(forecast, stdout_width()),
            "",
            f"{printable(str(source))}: {plan_totals(forecast)}, planned in {seconds:.1f} s{saved}",
            *planned_line(forecast),
        ]
    )
