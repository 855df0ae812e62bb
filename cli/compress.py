"""``tensorcomp compress``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Optional

import typer

from .lossy_options import (
    BitsPerWeight,
    Codec,
    Importance,
    MaxAbsError,
    MaxRelL2,
    MinSnr,
    OptionalEffort,
    Profile,
    TargetRatio,
    TargetSize,
    budget_of,
)
from .options import Force, Input, Json, Output, Threads, path
from .prune_options import (
    DensityFloor,
    Granularity,
    Prune,
    PruneMaxRelL2,
    PruneTargetSize,
    PruneWhere,
    Scope,
    Sparsity,
    Stats,
    pruning_of,
)


def compress(
    source: Input,
    *,
    out: Output = None,
    profile: Profile = None,
    max_rel_l2: MaxRelL2 = None,
    min_snr: MinSnr = None,
    max_abs_error: MaxAbsError = None,
    bits_per_weight: BitsPerWeight = None,
    target_ratio: TargetRatio = None,
    target_size: TargetSize = None,
    codec: Codec = None,
    importance: Importance = None,
    prune: Prune = None,
    sparsity: Sparsity = None,
    stats: Stats = None,
    scope: Scope = None,
    granularity: Granularity = None,
    prune_where: PruneWhere = None,
    density_floor: DensityFloor = None,
    prune_max_rel_l2: PruneMaxRelL2 = None,
    prune_target_size: PruneTargetSize = None,
    plan: Annotated[
        Optional[Path],  # noqa: UP045 - typer reads it at run time
        typer.Option(parser=path, metavar="FILE", help="Obey a plan that tensorcomp plan wrote."),
    ] = None,
    effort: OptionalEffort = None,
    threads: Threads = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Make a checkpoint smaller: without losing a bit, or within an error budget.

    INPUT is a .safetensors, .pt, .pth, .bin or .npz file, or a folder of such files. Without -o,
    model.safetensors becomes model.tc.safetensors beside it, and a folder NAME becomes NAME.tc.

    A budget is one limit: --max-rel-l2, --min-snr and --max-abs-error hold for each tensor as it is
    decoded; --bits-per-weight, --target-ratio and --target-size hold for the file. A profile brings
    its own budget, which another replaces.

    With --prune, the weights of lowest score are set to zero first; budgets then hold for the
    others.

    \b
    Examples:
      tensorcomp compress model.safetensors --effort max
      tensorcomp compress model.safetensors --profile transformer --min-snr 30
      tensorcomp compress model.safetensors --bits-per-weight 4
      tensorcomp compress model.safetensors --codec 'linear=affine(4, 128)'
      tensorcomp compress model.safetensors --prune magnitude --sparsity 0.5
    """  # noqa: D301 - \b keeps the example's lines as they are
    from tensorcomp import files
    from tensorcomp.container.reader import default_max_bytes
    from tensorcomp.reports import cost_table, pruning_line, to_json, totals
    from tensorcomp.reports.text import bytes_text, printable

    from .exits import say
    from .output import show, show_json, stdout_width
    from .progress import progress
    from .summaries import summarise

    begun = time.perf_counter()
    budget = budget_of(
        max_rel_l2=max_rel_l2,
        min_snr=min_snr,
        max_abs_error=max_abs_error,
        bits_per_weight=bits_per_weight,
        target_ratio=target_ratio,
        target_size=target_size,
    )
    pruning = pruning_of(
        prune,
        sparsity=sparsity,
        stats=stats,
        scope=scope,
        granularity=granularity,
        where=prune_where,
        floor=density_floor,
        max_rel_l2=prune_max_rel_l2,
        target_size=prune_target_size,
    )
    with progress("compressing") as shown:
        result = files.compress(
            source,
            out,
            effort=None if effort is None else effort.value,
            profile=profile,
            budget=budget,
            codecs=codec or (),
            importance=importance,
            plan=plan,
            prune=pruning,
            threads=threads,
            force=force,
            progress=shown,
        )
    seconds = time.perf_counter() - begun
    summary = summarise(result.path)
    if summary.input_bytes > default_max_bytes(summary.output_bytes):
        say(f"to restore so much from so little takes --max-bytes {summary.input_bytes}")
    if json:
        show_json(to_json(summary, seconds))
        return
    speed = bytes_text(round(summary.input_bytes / seconds))
    width = stdout_width()
    show(
        [
            f"{printable(str(source))} compressed to {printable(str(result.path))}",
            f"{totals(summary)}, {seconds:.1f} s ({speed}/s)",
            *pruning_line(summary),
            "",
            *cost_table(summary, width),
        ]
    )
