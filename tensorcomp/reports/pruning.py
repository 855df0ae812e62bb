"""Show what was pruned of a checkpoint before it was compressed: one line, JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tensorcomp._formatting import percent, printable, snr_text
from tensorcomp.pipeline.summary import CheckpointSummary, TensorSummary

if TYPE_CHECKING:
    from tensorcomp.api.plan import PlanReport
    from tensorcomp.container.records import PruningRecord

_SIX_DIGITS = 5e-6  # by which a number of six digits may be off, relatively


def pruning_json(summary: CheckpointSummary) -> dict[str, Any] | None:
    """Return the figures of all pruned tensors as JSON values; None if none was selected.

    Returns
    -------
    dict
        ``scores`` and ``granularities`` by which they were pruned, mostly one each; ``count`` of
        the ``weights`` of the selected tensors were set to zero, the part ``sparsity``;
        ``worst_rel_l2``, the largest share of its norm that a tensor lost by pruning alone;
        ``kept_snr_db``, what the SNR of the weights that are not pruned is at least in each tensor,
        in dB, null if they are exact.
    """
    rows = [row for row in summary.pruned if row.pruned is not None]
    if not rows:
        return None
    kept = [_kept_snr_db(row, row.pruned) for row in rows if row.pruned is not None]
    return {
        **_figures([(row.pruned, row.weights) for row in rows if row.pruned is not None]),
        "kept_snr_db": min((snr for snr in kept if snr is not None), default=None),
    }


def tensor_pruning_json(row: TensorSummary) -> dict[str, Any]:
    """Return how one pruned tensor was pruned as JSON values."""
    record = row.pruned
    assert record is not None
    return {
        "score": record.score,
        "granularity": record.granularity,
        "count": record.count,
        "sparsity": record.count / row.weights if row.weights else 0.0,
        "rel_l2": record.rel_l2,
    }


def pruning_line(summary: CheckpointSummary) -> list[str]:
    """Return a line that says what was pruned and what that alone cost; none if nothing was."""
    found = pruning_json(summary)
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
    return [f"{_what(_figures(records))}; errors are those of the others"]


def share_text(record: PruningRecord | None, weights: int) -> str | None:
    """Return which part of so many weights a record says is pruned; None if there is none."""
    return None if record is None or not weights else percent(record.count / weights)


def _kept_snr_db(row: TensorSummary, record: PruningRecord) -> float | None:
    """Return what the SNR of a tensor's weights that are not pruned is at least; None if exact.

    Their error is what the whole error has beyond that of pruning; where it is too small to be told
    from the six digits of the whole, what the tensor's bound promises.
    """
    if row.rel_l2 <= float(f"{record.rel_l2:.6g}") or record.rel_l2 >= 1:
        return None
    whole = (row.rel_l2 * (1 + _SIX_DIGITS)) ** 2
    rel_l2 = math.sqrt((whole - record.rel_l2**2) / (1 - record.rel_l2**2))
    return -20 * math.log10(min(rel_l2, row.max_rel_l2 or math.inf))


def _figures(records: Sequence[tuple[PruningRecord, int]]) -> dict[str, Any]:
    """Return the figures of records, each with the elements of its tensor."""
    count = sum(record.count for record, _ in records)
    weights = sum(elements for _, elements in records)
    return {
        "scores": list(dict.fromkeys(record.score for record, _ in records)),
        "granularities": list(dict.fromkeys(record.granularity for record, _ in records)),
        "count": count,
        "weights": weights,
        "sparsity": count / weights if weights else 0.0,
        "worst_rel_l2": max(record.rel_l2 for record, _ in records),
    }


def _what(found: dict[str, Any]) -> str:
    how = f"{' and '.join(found['scores'])}, {' and '.join(found['granularities'])}"
    weights = f"{found['count']:,} of {found['weights']:,} weights, {percent(found['sparsity'])}"
    return f"pruned ({printable(how)}): {weights}"
