"""``tensorcomp compare``."""

from __future__ import annotations

import time
from pathlib import Path

import click

from .options.common import forms, path, refuse_two_forms, threads


@click.command()
@click.argument("a", type=path, metavar="A", help="The original: a file or a folder.")
@click.argument("b", type=path, metavar="B", help="What is compared with it.")
@threads
@forms
def compare(
    a: Path, b: Path, *, threads: int | None, json: bool, csv: bool, markdown: bool
) -> None:
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
    refuse_two_forms(json=json, csv=csv, markdown=markdown)
    from tensorcomp._formatting import printable
    from tensorcomp._names import shown as named
    from tensorcomp.api import compare as comparison
    from tensorcomp.errors import VerificationError
    from tensorcomp.reports import comparison_tables as tables

    from .output import show, show_json, stdout_width
    from .progress import progress

    begun = time.perf_counter()
    with progress("comparing") as shown:
        found = comparison.compare(a, b, threads=threads, progress=shown)
    seconds = time.perf_counter() - begun
    if json:
        show_json(tables.comparison_json(found, seconds))
    elif csv:
        show(tables.comparison_csv(found))
    elif markdown:
        show(tables.comparison_markdown(found))
    else:
        title = f"{printable(str(a))} and {printable(str(b))}"
        table = tables.comparison_table(found, stdout_width())
        show([*table, "", f"{title}: {tables.comparison_totals(found)}"])
    if found.problems:
        first, others = found.problems[0], len(found.problems) - 1
        more = f" (and {others} more)" if others else ""
        raise VerificationError(f"tensor {named(first.name)}: {first.problem}{more}")
