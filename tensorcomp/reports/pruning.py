"""Show what was pruned of a checkpoint before it was compressed: one line, JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tensorcomp._formatting import percent, printable, snr_text
from tensorcomp.pipeline.summary import CheckpointSummary, pruning_figures

if TYPE_CHECKING:
    from tensorcomp.api.plan import PlanReport


def pruning_line(summary: CheckpointSummary) -> list[str]:
    """Return a line that says what was pruned and what that alone cost; none if nothing was."""
    found = summary.pruning()
    if found is None:
        return []
    cost = "at no error"
    if found["worst_rel_l2"]:
        snr = max(-20 * math.log10(found["worst_rel_l2"]), 0.0)
        cost = f"which alone leaves each tensor an SNR ≥ {snr_text(snr)} dB"
    if found["kept_snr_db"] is not None:
        tenths = math.floor(10 * found["kept_snr_db"] + 1e-6)
        cost += f"; the weights that are left have one ≥ {snr_text(tenths / 10)} dB"
    return [f"{_what(found)}, {cost}"]


def planned_line(forecast: PlanReport) -> list[str]:
    """Return a line that says what a plan is to prune; none if nothing."""
    records = [
        (record, math.prod(forecast.infos[name].shape)) for name, record in forecast.pruned.items()
    ]
    if not records:
        return []
    return [f"{_what(pruning_figures(records))}; errors are those of the others"]


def _what(found: dict[str, Any]) -> str:
    how = f"{' and '.join(found['scores'])}, {' and '.join(found['granularities'])}"
    weights = f"{found['count']:,} of {found['weights']:,} weights, {percent(found['sparsity'])}"
    return f"pruned ({printable(how)}): {weights}"
