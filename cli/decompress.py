"""``tensorcomp decompress``."""

from __future__ import annotations

import time
from pathlib import Path

import click

from .options.common import force, json, output, source, threads


@click.command()
@source
@output()
@threads
@force
@click.option(
    "--max-bytes",
    type=click.IntRange(min=0),
    metavar="N",
    help="Refuse tensors that take more; by default 1 GiB and 1,000 times the file.",
)
@json
def decompress(
    source: Path,
    out: Path | None,
    *,
    threads: int | None,
    force: bool,
    max_bytes: int | None,
    json: bool,
) -> None:
    """Restore the checkpoint that was compressed.

    A .safetensors file comes back byte for byte; a torch file or .npz archive as equal objects.
    Without -o, model.tc.safetensors becomes model.safetensors beside it, and a folder NAME.tc
    becomes NAME.

    \b
    Example:
      tensorcomp decompress model.tc.safetensors -o restored.safetensors
    """  # noqa: D301 - \b keeps the example's lines as they are
    from tensorcomp._formatting import bytes_text, printable
    from tensorcomp.api import decompress as restoring
    from tensorcomp.reports.as_json import to_json

    from .output import show, show_json
    from .progress import progress
    from .summaries import summarise

    begun = time.perf_counter()
    with progress("decompressing") as shown:
        restored = restoring.decompress(
            source, out, threads=threads, force=force, max_bytes=max_bytes, progress=shown
        )
    seconds = time.perf_counter() - begun
    summary = summarise(source)
    if json:
        show_json(to_json(summary, seconds))
        return
    size, speed = summary.input_bytes, summary.input_bytes / seconds
    show(
        [
            f"{printable(str(restored))} restored: {bytes_text(size)} in {seconds:.1f} s "
            f"({bytes_text(round(speed))}/s)"
        ]
    )
