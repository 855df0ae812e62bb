"""What was pruned of a checkpoint before it was compressed, in figures and in one line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tensorcomp._formatting import printable, snr_text
from tensorcomp.api.inspect import Summary, TensorRow

if TYPE_CHECKING:
    from tensorcomp.api.plan import Forecast
    from tensorcomp.container.records import PruningRecord

_SIX_DIGITS = 5e-6  # by which a number of six digits may be off, relatively


@dataclass(frozen=True)
class PruningFigures:
    """The figures of all pruned tensors together.

    Parameters
    ----------
    scores, granularities : tuple of str
        By which they were pruned; mostly one each.
    count : int
        Elements that were set to zero.
    weights : int
        Elements of the tensors that were selected.
    worst_rel_l2 : float
        The largest share of its norm that a tensor lost by pruning alone.
    kept_snr_db : float or None
        What the SNR of the weights that are not pruned is at least in each tensor, in dB; None if
        they are exact.
    """

    scores: tuple[str, ...]
    granularities: tuple[str, ...]
    count: int
    weights: int
    worst_rel_l2: float
    kept_snr_db: float | None = None

    @property
    def sparsity(self) -> float:
        """The exact part of the selected weights that was pruned."""
        return self.count / self.weights if self.weights else 0.0


def pruning_figures(summary: Summary) -> PruningFigures | None:
    """Return what was pruned; None if nothing was selected for it."""
    rows = [row for row in summary.pruned if row.pruned is not None]
    found = _together([(row.pruned, row.weights) for row in rows if row.pruned is not None])
    if found is None:
        return None
    kept = (kept_snr_db(row, row.pruned) for row in rows if row.pruned is not None)
    return replace(found, kept_snr_db=min((snr for snr in kept if snr is not None), default=None))


def kept_snr_db(row: TensorRow, record: PruningRecord) -> float | None:
    """Return what the SNR of a tensor's weights that are not pruned is at least; None if exact.

    Their error is what the whole error has beyond that of pruning; where it is too small to be told
    from the six digits of the whole, what the tensor's bound promises.
    """
    if row.rel_l2 <= float(f"{record.rel_l2:.6g}") or record.rel_l2 >= 1:
        return None
    whole = (row.rel_l2 * (1 + _SIX_DIGITS)) ** 2
    rel_l2 = math.sqrt((whole - record.rel_l2**2) / (1 - record.rel_l2**2))
    return -20 * math.log10(min(rel_l2, row.max_rel_l2 or math.inf))


def _together(records: Sequence[tuple[PruningRecord, int]]) -> PruningFigures | None:
    """Return the figures of records, each with the elements of its tensor."""
    if not records:
        return None
    return PruningFigures(
        tuple(dict.fromkeys(record.score for record, _ in records)),
        tuple(dict.fromkeys(record.granularity for record, _ in records)),
        sum(record.count for record, _ in records),
        sum(weights for _, weights in records),
        max(record.rel_l2 for record, _ in records),
    )


def pruning_line(summary: Summary) -> list[str]:
    """Return a line that says what was pruned and what that alone cost; none if nothing was."""
    found = pruning_figures(summary)
    if found is None:
        return []
    cost = "at no error"
    if found.worst_rel_l2:
        snr = max(-20 * math.log10(found.worst_rel_l2), 0.0)
        cost = f"which alone leaves each tensor an SNR ≥ {snr_text(snr)} dB"
    if found.kept_snr_db is not None:
        tenths = math.floor(10 * found.kept_snr_db + 1e-6)
        cost += f"; the weights that are left have one ≥ {tenths / 10:.1f} dB"
    return [f"{_what(found)}, {cost}"]


def planned_line(forecast: Forecast) -> list[str]:
    """Return a line that says what a plan is to prune; none if nothing."""
    infos = forecast.infos
    found = _together(
        [(record, math.prod(infos[name].shape)) for name, record in forecast.pruned.items()]
    )
    return [] if found is None else [f"{_what(found)}; errors are those of the others"]


def _what(found: PruningFigures) -> str:
    how = f"{' and '.join(found.scores)}, {' and '.join(found.granularities)}"
    weights = f"{found.count:,} of {found.weights:,} weights, {percent(found.sparsity)}"
    return f"pruned ({printable(how)}): {weights}"


def percent(share: float) -> str:
    """Return a share in percent, with two digits after the point."""
    return f"{100 * share:.2f} %"


def pruned_share(row: TensorRow) -> str:
    """Return which part of a tensor was pruned; a dash if it was not selected."""
    return share_text(row.pruned, row.weights)


def share_text(record: PruningRecord | None, weights: int) -> str:
    """Return which part of so many weights a record says is pruned; a dash if there is none."""
    return "-" if record is None or not weights else percent(record.count / weights)


def pruning_to_json(summary: Summary) -> dict[str, Any] | None:
    """Return the figures of all pruned tensors as JSON values."""
    found = pruning_figures(summary)
    if found is None:
        return None
    return {
        "scores": list(found.scores),
        "granularities": list(found.granularities),
        "count": found.count,
        "weights": found.weights,
        "sparsity": found.sparsity,
        "worst_rel_l2": found.worst_rel_l2,
        "kept_snr_db": found.kept_snr_db,
    }


def tensor_pruning_to_json(row: TensorRow) -> dict[str, Any] | None:
    """Return how one tensor was pruned as JSON values."""
    if row.pruned is None:
        return None
    return {
        "score": row.pruned.score,
        "granularity": row.pruned.granularity,
        "count": row.pruned.count,
        "sparsity": row.pruned.count / row.weights if row.weights else 0.0,
        "rel_l2": row.pruned.rel_l2,
    }
