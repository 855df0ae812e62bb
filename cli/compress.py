"""``tensorcomp compress``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from .options.budget import budget_of, effort_option, lossy_options
from .options.common import force, json, output, path, source, threads
from .options.pruning import prune_options, pruning_of


@click.command()
@source
@output()
@lossy_options
@prune_options
@click.option("--plan", type=path, metavar="FILE", help="Obey a plan that tensorcomp plan wrote.")
@effort_option
@threads
@force
@json
def compress(source: Path, out: Path | None, *, json: bool, **options: Any) -> None:
    """Make a checkpoint smaller: without losing a bit, or within an error budget.

    INPUT is a .safetensors, .pt, .pth, .bin or .npz file, or a folder of such files. Without -o,
    model.safetensors becomes model.tc.safetensors beside it, and a folder NAME becomes NAME.tc.

    A budget is one limit: --max-rel-l2, --min-snr and --max-abs-error hold for each tensor as it is
    decoded; --bits-per-weight, --target-ratio and --target-size hold for the file. A profile brings
    its own budget, which another replaces.

    With --prune, the weights of lowest score are set to zero first; budgets then hold for the
    others.

    \b
    Examples:
      tensorcomp compress model.safetensors --effort max
      tensorcomp compress model.safetensors --profile transformer --min-snr 30
      tensorcomp compress model.safetensors --bits-per-weight 4
      tensorcomp compress model.safetensors --codec 'linear=affine(4, 128)'
      tensorcomp compress model.safetensors --prune magnitude --sparsity 0.5
    """  # noqa: D301 - \b keeps the example's lines as they are
    from tensorcomp._formatting import bytes_text, printable
    from tensorcomp.api import compress as files
    from tensorcomp.container.reader import default_max_bytes
    from tensorcomp.reports.as_json import to_json
    from tensorcomp.reports.pruned import pruning_line
    from tensorcomp.reports.tables import cost_table, totals

    from .exits import say
    from .output import show, show_json, stdout_width
    from .progress import progress
    from .summaries import summarise

    begun = time.perf_counter()
    budget, pruning = budget_of(options), pruning_of(options)
    with progress("compressing") as shown:
        result = files.compress(
            source, out, budget=budget, prune=pruning, progress=shown, **options
        )
    seconds = time.perf_counter() - begun
    summary = summarise(result.path)
    if summary.input_bytes > default_max_bytes(summary.output_bytes):
        say(f"to restore so much from so little takes --max-bytes {summary.input_bytes}")
    if json:
        show_json(to_json(summary, seconds))
        return
    speed = bytes_text(round(summary.input_bytes / seconds))
    width = stdout_width()
    show(
        [
            f"{printable(str(source))} compressed to {printable(str(result.path))}",
            f"{totals(summary)}, {seconds:.1f} s ({speed}/s)",
            *pruning_line(summary),
            "",
            *cost_table(summary, width),
        ]
    )
