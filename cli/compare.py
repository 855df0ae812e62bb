"""``tensorcomp compare``."""

from __future__ import annotations

from pathlib import Path

import click

from .command import Result, command
from .options import all_forms, bases, forced_report, option, path, threads


@command()
@click.argument("a", type=path, metavar="A", help="The original: a file or a folder.")
@click.argument("b", type=path, metavar="B", help="What is compared with it.")
@option(
    "--stats FILE",
    "Statistics of A by tensorcomp calibrate: measure the errors of outputs, and the loss that is "
    "predicted of them, as well.",
    dest="statistics",
)
@threads
@bases
@forced_report
@all_forms
def compare(
    a: Path,
    b: Path,
    *,
    statistics: Path | None,
    threads: int | None,
    bases: tuple[Path, ...],
) -> Result:
    """Measure how far the tensors of checkpoint B are from those of A.

    Both may be files or folders, compressed or not, of any format that compress takes. Tensors are
    matched by name. For each, and for all floats together, the table has the bytes of both and
    their ratio, the norms L1 and L2 of the difference, L2 divided by that of A, the largest
    difference, the SNR, and the cosine. Types that differ are compared by value; a NaN equals a
    NaN. In a terminal that is too narrow for all of it, some columns are left out.

    The exit status is 0 if all tensors were compared, however far apart, 1 if one is missing or has
    another shape or kind of type, 2 if a file cannot be read.

    \b
    Example:
      tensorcomp compare model.safetensors model.tc.safetensors
    """  # noqa: D301 - \b keeps the example's lines as they are
    from tensorcomp._formatting import printable, shown
    from tensorcomp.api import compare as comparison
    from tensorcomp.errors import VerificationError
    from tensorcomp.reports import comparison_tables as tables

    from .progress import progress

    with progress("comparing") as watch:
        found = comparison.compare(
            a, b, statistics=statistics, threads=threads, bases=bases, progress=watch
        )
    failure = None
    if found.problems:
        first, others = found.problems[0], len(found.problems) - 1
        more = f" (and {others:,} more)" if others else ""
        failure = VerificationError(f"tensor {shown(first.name)}: {first.problem}{more}")
    title = f"{printable(str(a))} and {printable(str(b))}"
    return Result(
        lambda: {**tables.comparison_json(found), "seconds": round(watch.seconds, 6)},
        tables.comparison_table(found),
        summary=(f"{title}: {tables.comparison_totals(found)}",),
        failure=failure,
        report=lambda: found,
    )
