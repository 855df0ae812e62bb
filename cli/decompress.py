"""``tensorcomp decompress``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .command import Result, command
from .options import as_json, bases, force, metrics, option, output, replace, source, threads

if TYPE_CHECKING:
    from tensorcomp.container.model import Model


@command()
@source
@output()
@threads
@option(
    "--max-bytes N",
    "Refuse tensors that take more; by default 1 GiB and 1,000 times the file.",
    type=click.IntRange(min=0),
)
@bases
@force
@replace
@metrics
@as_json
def decompress(source: Path, out: Path | None, *, metrics: Path | None, **options: Any) -> Result:
    """Restore the checkpoint that was compressed.

    It comes back byte for byte, but for what lossy compression changed. Without -o,
    model.tc.safetensors becomes model.safetensors beside it, and a folder NAME.tc becomes NAME.
    With --replace, each file takes the place of the compressed one, in a folder one after the
    other.

    \b
    Example:
      tensorcomp decompress model.tc.safetensors -o restored.safetensors
    """  # noqa: D301 - \b keeps the example's lines as they are
    from tensorcomp._formatting import bytes_text, counted, printable, seconds_text, speed_text
    from tensorcomp.api import decompress as restoring
    from tensorcomp.api.inspect import inspect as summarise
    from tensorcomp.container.model import open_model

    from .progress import progress

    with progress("decompressing", metrics=metrics) as watch:
        # With --replace nothing of the source is left to look at afterwards.
        before = summarise(source) if options["replace"] else None
        model = open_model(source, compressed=True)
        restored = restoring.decompress(source, out, progress=watch, **options)
        size = _source_bytes(model) if before is None else before.input_bytes
        watch.tell(output_bytes=size)
    line = (
        f"{printable(str(restored))} restored: {bytes_text(size)} in "
        f"{seconds_text(watch.seconds)}, decoded at {speed_text(size, watch.work_seconds)}"
    )
    if before is None and model.others:
        line += f"; {counted(len(model.others), 'other file')} copied"

    def figures() -> dict[str, Any]:
        return {**(before or summarise(source)).to_dict(), "seconds": round(watch.seconds, 6)}

    return Result(figures, summary=(line,))


def _source_bytes(model: Model) -> int:
    from tensorcomp.container.reader import CompressedFile

    size = 0
    for shard in model.shards:
        with CompressedFile(model.file(shard)) as opened:
            size += opened.manifest.source_bytes
    return size
