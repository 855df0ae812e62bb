"""``tensorcomp compress``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .command import Result, command, stdout_width
from .options import (
    as_json,
    job_options,
    keep_names,
    metrics,
    option,
    options_of,
    output,
    replace,
    report,
    source,
)

if TYPE_CHECKING:
    from tensorcomp.api.compress_result import CompressResult


@command()
@source
@output()
@job_options
@replace
@keep_names
@option(
    "--part I/N",
    "Of a folder: compress the shards of one part, from 0/N, on one of many machines; tensorcomp "
    "merge puts them together.",
)
@option(
    "--dedup",
    "Of a folder of many models: store once what they share, each file against its nearest "
    "relative, which is found by itself.",
)
@report
@metrics
@as_json
def compress(
    source: Path,
    out: Path | None,
    *,
    force: bool,
    replace: Any,
    keep_names: bool,
    part: str | None,
    dedup: bool,
    metrics: Path | None,
    **asked: Any,
) -> Result:
    """Make a checkpoint smaller: without losing a bit, or within an error budget.

    INPUT is a checkpoint file (safetensors, torch, GGUF, NumPy, HDF5 or ONNX), or a folder of such
    files: they are known by content, and all others are copied. A file of no known format is
    compressed as bytes. Without -o, model.safetensors becomes model.tc.safetensors beside it,
    model.pt becomes model.pt.tc.safetensors, and a folder NAME becomes NAME.tc.

    A budget is one limit: --max-rel-l2, --min-snr and --max-abs-error hold for each tensor as it is
    decoded, --max-output-error for what its layer returns; --bits-per-weight, --target-ratio and
    --target-size hold for the file, or for all compressed files of a folder, without those that are
    copied. A profile brings its own budget, which another replaces.

    With --replace, each file takes the place of its original, in a folder one after the other: for
    a disk without room for both. A run that was killed goes on where it was.

    With --part, the shards of one part are compressed into NAME.tc.partial. What a run before had
    finished is left as it is; a size needs a --plan, since it is of all shards together.

    With --dedup, files of the output need each other: keep the folder whole. Of a damaged one,
    verify names the files that it takes with it.

    With --prune, the weights of lowest score are set to zero first; budgets then hold for the
    others.

    \b
    Examples:
      tensorcomp compress model.safetensors --effort max
      tensorcomp compress model.safetensors --profile transformer --min-snr 30
      tensorcomp compress model.safetensors --bits-per-weight 4
      tensorcomp compress model.safetensors --bits-per-weight 3 \\
          --stats stats.safetensors
      tensorcomp compress model --part 0/8
      tensorcomp compress models --dedup
      tensorcomp compress model.safetensors --codec 'linear=affine(4, 128)'
      tensorcomp compress model.safetensors --prune magnitude --sparsity 0.5
    """  # noqa: D301 - \b keeps the example's lines as they are
    from tensorcomp._formatting import bytes_text, counted, printable, speed_text
    from tensorcomp.api import compress as files

    from .progress import progress

    options = options_of(asked)
    with progress("compressing", metrics=metrics) as watch:
        result = files.compress(
            source,
            out,
            force=force,
            replace=replace,
            keep_names=keep_names,
            part=part,
            dedup=dedup,
            progress=watch,
            options=options,
        )
        watch.tell(output_bytes=result.output_bytes)
    freed = result.input_bytes - result.output_bytes
    done = f"{printable(str(source))} compressed to"
    if part is not None:
        done = f"{printable(str(source))}, part {part}: {counted(len(result.files), 'shard')}"
        done += f", {result.reused} of them by an earlier run," if result.reused else ""
        done += " compressed to"
    elif replace:
        done = f"{printable(str(source))} replaced ({bytes_text(freed)} freed) by"
    more = {"freed_bytes": freed} if replace else {}
    more |= {"reused": result.reused} if part is not None else {}
    speed = f", encoded at {speed_text(result.input_bytes, watch.work_seconds)}"
    return written(result, done, watch.seconds, speed, more)


def written(
    result: CompressResult, done: str, seconds: float, speed: str = "", more: Any = None
) -> Result:
    """Return what to print of files that were compressed."""
    from tensorcomp._formatting import printable, seconds_text
    from tensorcomp.container.reader import default_max_bytes
    from tensorcomp.reports.inspect_tables import cost_table, remarks

    from .exits import say

    summary = result.summary
    if summary.input_bytes > default_max_bytes(summary.output_bytes):
        say(f"to restore so much from so little takes --max-bytes {summary.input_bytes}")
    figures = result.files and (  # a part may have none
        f"{summary.totals()}, {seconds_text(seconds)}{speed}",
        *remarks(summary),
        "",
        *cost_table(summary).lines(stdout_width()),
    )
    return Result(
        lambda: {**summary.to_dict(), "seconds": round(seconds, 6), **(more or {})},
        summary=(f"{done} {printable(str(result.path))}", *figures),
        report=lambda: result,
    )
