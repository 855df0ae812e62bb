"""``tensorcomp decompress``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .command import Result, command
from .options import as_json, force, option, output, replace, source, threads


@command()
@source
@output()
@threads
@option(
    "--max-bytes N",
    "Refuse tensors that take more; by default 1 GiB and 1,000 times the file.",
    type=click.IntRange(min=0),
)
@force
@replace
@as_json
def decompress(source: Path, out: Path | None, **options: Any) -> Result:
    """Restore the checkpoint that was compressed.

    A .safetensors file comes back byte for byte; a torch file or .npz archive as equal objects.
    Without -o, model.tc.safetensors becomes model.safetensors beside it, and a folder NAME.tc
    becomes NAME. With --replace, each file takes the place of the compressed one, in a folder one
    after the other.

    \b
    Example:
      tensorcomp decompress model.tc.safetensors -o restored.safetensors
    """  # noqa: D301 - \b keeps the example's lines as they are
    from tensorcomp._formatting import bytes_text, counted, printable, seconds_text, speed_text
    from tensorcomp.api import decompress as restoring
    from tensorcomp.api.inspect import inspect as summarise

    from .progress import progress

    summary = summarise(source)  # first: with --replace nothing is left to look at afterwards
    with progress("decompressing") as watch:
        restored = restoring.decompress(source, out, progress=watch, **options)
    line = (
        f"{printable(str(restored))} restored: {bytes_text(summary.input_bytes)} in "
        f"{seconds_text(watch.seconds)}, decoded at "
        f"{speed_text(summary.input_bytes, watch.work_seconds)}"
    )
    if not options["replace"] and summary.copied and summary.copied.files:
        line += f"; {counted(summary.copied.files, 'other file')} copied"
    return Result(
        lambda: {**summary.to_dict(), "seconds": round(watch.seconds, 6)}, summary=(line,)
    )
