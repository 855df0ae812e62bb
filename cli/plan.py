"""``tensorcomp plan``."""

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
from .options import Force, Input, Json, Threads, path
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


def plan(
    source: Input,
    *,
    out: Annotated[
        Optional[Path],  # noqa: UP045 - typer reads it at run time
        typer.Option("-o", "--output", parser=path, metavar="FILE", help="Save the plan as JSON."),
    ] = None,
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
    effort: OptionalEffort = None,
    threads: Threads = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Show what compress would do with each tensor, and save it to be edited and obeyed.

    Trees are tried on samples; nothing is compressed. The saved plan holds for each tensor its
    tree, its bound, the predicted bytes and error, and why. Edit a tree or a bound, and give the
    file to tensorcomp compress --plan; what is pruned first must be said to it again.

    \b
    Example:
      tensorcomp plan model.safetensors --bits-per-weight 4 -o plan.json
      tensorcomp compress model.safetensors --plan plan.json
    """  # noqa: D301 - \b keeps the example's lines as they are
    from tensorcomp import forecasting
    from tensorcomp.container.atomic import atomic_file, refuse_existing
    from tensorcomp.reports import plan_table, plan_totals, planned_line
    from tensorcomp.reports.text import printable

    from .output import show, show_text, stdout_width

    begun = time.perf_counter()
    if out is not None:
        refuse_existing(out, force=force)
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
    forecast = forecasting.plan(
        source,
        profile=profile,
        budget=budget,
        codecs=codec or (),
        importance=importance,
        prune=pruning,
        effort=None if effort is None else effort.value,
        threads=threads,
    )
    text = forecast.to_json()
    if out is not None:
        with atomic_file(out, force=force) as file:
            file.write(text.encode())
    if json:
        show_text(text)
        return
    seconds = time.perf_counter() - begun
    saved = "" if out is None else f"; saved as {printable(str(out))}"
    show(
        [
            *plan_table(forecast, stdout_width()),
            "",
            f"{printable(str(source))}: {plan_totals(forecast)}, planned in {seconds:.1f} s{saved}",
            *planned_line(forecast),
        ]
    )
