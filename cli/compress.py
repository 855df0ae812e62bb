"""``tensorcomp compress``."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from .options import Effort, Force, Input, Json, Output, Threads


def compress(
    source: Input,
    *,
    out: Output = None,
    threads: Threads = None,
    effort: Annotated[Effort, typer.Option(help="What size is worth in time.")] = Effort.BALANCED,
    force: Force = False,
    json: Json = False,
) -> None:
    """Make a checkpoint smaller without losing a bit.

    INPUT is a .safetensors, .pt, .pth, .bin or .npz file, or a folder of such files. Without -o,
    model.safetensors becomes model.tc.safetensors beside it, and a folder NAME becomes NAME.tc.

    \b
    Example:
      tensorcomp compress model.safetensors --effort max
    """  # noqa: D301 - \b keeps the example's lines as they are
    from tensorcomp import files
    from tensorcomp.reports import cost_table, to_json, totals
    from tensorcomp.reports.text import bytes_text, printable

    from .output import show, show_json, stdout_width
    from .progress import progress
    from .summaries import summarise

    begun = time.perf_counter()
    with progress("compressing") as shown:
        result = files.compress(
            source, out, effort=effort.value, threads=threads, force=force, progress=shown
        )
    seconds = time.perf_counter() - begun
    summary = summarise(result.path)
    if json:
        show_json(to_json(summary, seconds))
        return
    speed = bytes_text(round(summary.input_bytes / seconds))
    width = stdout_width()
    show(
        [
            f"{printable(str(source))} compressed to {printable(str(result.path))}",
            f"{totals(summary)}, {seconds:.1f} s ({speed}/s)",
            "",
            *cost_table(summary, width),
        ]
    )
