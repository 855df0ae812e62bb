"""``tensorcomp sparsity``."""

from __future__ import annotations

from pathlib import Path

from .command import Result, command
from .options import all_forms, force, option, printing, report, source, threads

_SPEED = (
    "zeros alone do not make a matrix product faster: n of m patterns do, on hardware that skips "
    "them, and cutting dead rows and columns out of the model does (--keep-indices)"
)


@command()
@source
@option("--all", "List every tensor, not only weights that have zeros.", dest="every")
@printing(
    "--keep-indices OUT",
    "Save which rows and columns of each tensor are left, as JSON.",
    argument="out",
)
@force
@threads
@report
@all_forms
def sparsity(
    source: Path, *, every: bool, keep_indices: Path | None, force: bool, threads: int | None
) -> Result:
    """Show the zeros of a checkpoint, and what they save.

    INPUT is a file or a folder, compressed or not. Of each weight that has zeros the table has
    their number, the density, rows (filters) and columns (channels) that are all zero, and the
    bytes under each way to store it losslessly, the best one last: dense; with a bitmap; with the
    gaps between values; packed, where no 4 neighbours have more than 1 or 2 values, or no 8 more
    than 4; live, without dead rows and columns; and entropy, what compress does.

    The saved indices tell a tool that changes the model's shape which rows and columns to keep.

    \b
    Examples:
      tensorcomp sparsity pruned.safetensors
      tensorcomp sparsity pruned.tc.safetensors --keep-indices keep.json
    """  # noqa: D301 - \b keeps the example's lines as they are
    from tensorcomp._formatting import printable
    from tensorcomp.io.files import refuse_existing
    from tensorcomp.pruning.keep_indices import save_keep_indices
    from tensorcomp.sparsity import tables
    from tensorcomp.sparsity.measure import sparsity_report
    from tensorcomp.sparsity.report import zeros_report

    from .progress import progress

    if keep_indices is not None:
        refuse_existing(keep_indices, force=force)
    with progress("counting") as watch:
        found = sparsity_report(source, every=every, threads=threads, progress=watch)
    if keep_indices is not None:
        save_keep_indices(found.kept, keep_indices, force=force)
    first, *others = tables.sparsity_totals(found)
    return Result(
        lambda: {**tables.sparsity_json(found), "seconds": round(watch.seconds, 6)},
        tables.sparsity_table(found),
        summary=(f"{printable(str(source))}: {first}", *others, _SPEED),
        report=lambda: zeros_report(found),
    )
