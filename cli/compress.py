"""``tensorcomp compress``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .command import Result, command, stdout_width
from .options import as_json, job_options, keep_names, options_of, output, replace, source


@command()
@source
@output()
@job_options
@replace
@keep_names
@as_json
def compress(
    source: Path, out: Path | None, *, force: bool, replace: Any, keep_names: bool, **asked: Any
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

    With --prune, the weights of lowest score are set to zero first; budgets then hold for the
    others.

    \b
    Examples:
      tensorcomp compress model.safetensors --effort max
      tensorcomp compress model.safetensors --profile transformer --min-snr 30
      tensorcomp compress model.safetensors --bits-per-weight 4
      tensorcomp compress model.safetensors --bits-per-weight 3 \\
          --stats stats.safetensors
      tensorcomp compress model.safetensors --codec 'linear=affine(4, 128)'
      tensorcomp compress model.safetensors --prune magnitude --sparsity 0.5
    """  # noqa: D301 - \b keeps the example's lines as they are
    from tensorcomp._formatting import bytes_text, printable, seconds_text, speed_text
    from tensorcomp.api import compress as files
    from tensorcomp.container.reader import default_max_bytes
    from tensorcomp.reports.inspect_tables import cost_table, remarks

    from .exits import say
    from .progress import progress

    options = options_of(asked)
    with progress("compressing") as watch:
        result = files.compress(
            source,
            out,
            force=force,
            replace=replace,
            keep_names=keep_names,
            progress=watch,
            options=options,
        )
    summary = result.summary
    freed = {"freed_bytes": summary.input_bytes - summary.output_bytes} if replace else {}
    done = f"replaced ({bytes_text(freed['freed_bytes'])} freed) by" if freed else "compressed to"
    if summary.input_bytes > default_max_bytes(summary.output_bytes):
        say(f"to restore so much from so little takes --max-bytes {summary.input_bytes}")
    speed = speed_text(summary.input_bytes, watch.work_seconds)
    return Result(
        lambda: {**summary.to_dict(), "seconds": round(watch.seconds, 6), **freed},
        summary=(
            f"{printable(str(source))} {done} {printable(str(result.path))}",
            f"{summary.totals()}, {seconds_text(watch.seconds)}, encoded at {speed}",
            *remarks(summary),
            "",
            *cost_table(summary).lines(stdout_width()),
        ),
    )
