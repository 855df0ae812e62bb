"""``tensorcomp inspect``."""

from __future__ import annotations

from pathlib import Path

from .command import Result, command, stdout_width
from .options import all_forms, forced_report, source


@command()
@source
@forced_report
@all_forms
def inspect(source: Path) -> Result:
    """Show the tensors of a checkpoint.

    INPUT is a file or a folder, compressed or not; nothing is decoded. Of each tensor the table has
    name, shape, type, role, bytes, bits stored per weight, ratio, tree, and why that tree. It is
    folded to the width of a terminal; in a pipe each tensor is one line.

    \b
    Example:
      tensorcomp inspect model.tc.safetensors
    """  # noqa: D301 - \b keeps the example's lines as they are
    from tensorcomp._formatting import printable
    from tensorcomp.api.inspect import inspect as summarise
    from tensorcomp.reports.inspect_tables import GAP, remarks, tensor_legend

    from .progress import progress

    with progress("inspecting") as watch:
        summary = summarise(source)
    line = f"{printable(str(source))}: {summary.totals()}"
    return Result(
        lambda: {**summary.to_dict(), "seconds": round(watch.seconds, 6)},
        summary.table(),
        notes=(GAP,) if summary.lossy else (),
        summary=(*tensor_legend(summary, stdout_width()), line, *remarks(summary)),
        report=lambda: summary,
    )
