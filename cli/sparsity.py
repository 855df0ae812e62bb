"""``tensorcomp sparsity``."""

from __future__ import annotations

import time
from pathlib import Path

import click

from .options.common import force, forms, path, refuse_two_forms, source, threads


@click.command()
@source
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="List every tensor, not only weights that have zeros.",
)
@click.option(
    "--keep-indices",
    type=path,
    metavar="OUT",
    help="Save which rows and columns of each tensor are left, as JSON.",
)
@force
@threads
@forms
def sparsity(
    source: Path,
    *,
    every: bool,
    keep_indices: Path | None,
    force: bool,
    threads: int | None,
    json: bool,
    csv: bool,
    markdown: bool,
) -> None:
    """Show the zeros of a checkpoint, and what they save.

    INPUT is a file or a folder, compressed or not. Of each weight that has zeros the table has
    their number, the density, rows (filters) and columns (channels) that are all zero, and the
    bytes under each way to store it losslessly, the fewest marked by *: dense; with a bitmap; with
    the gaps between values; packed, where no 4 neighbours have more than 1 or 2 values, or no 8
    more than 4; live, without dead rows and columns; and entropy, what compress does.

    The saved indices tell a tool that changes the model's shape which rows and columns to keep.

    \b
    Examples:
      tensorcomp sparsity pruned.safetensors
      tensorcomp sparsity pruned.tc.safetensors --keep-indices keep.json
    """  # noqa: D301 - \b keeps the example's lines as they are
    refuse_two_forms(json=json, csv=csv, markdown=markdown)
    from tensorcomp._formatting import printable
    from tensorcomp.io.atomic import refuse_existing
    from tensorcomp.pruning.keep_indices import save_keep_indices
    from tensorcomp.sparsity import tables
    from tensorcomp.sparsity.measure import sparsity_report

    from .output import show, show_json, stdout_width
    from .progress import progress

    begun = time.perf_counter()
    if keep_indices is not None:
        refuse_existing(keep_indices, force=force)
    with progress("counting") as shown:
        report = sparsity_report(source, every=every, threads=threads, progress=shown)
    if keep_indices is not None:
        save_keep_indices(report.kept, keep_indices, force=force)
    if json:
        show_json(tables.sparsity_json(report, time.perf_counter() - begun))
    elif csv:
        show(tables.sparsity_csv(report))
    elif markdown:
        show(tables.sparsity_markdown(report))
    else:
        table = tables.sparsity_table(report, stdout_width())
        first, *others = tables.sparsity_totals(report)
        show([*table, *([""] if table else []), f"{printable(str(source))}: {first}", *others])
