"""Show the tensors of a checkpoint: costs, trees, roles and pruning."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tensorcomp._formatting import bytes_text, counted, listed, percent, printable, snr_text
from tensorcomp._tables import Column, Table, Value, fold
from tensorcomp.pipeline.summary import CheckpointSummary
from tensorcomp.pipeline.tensor_summary import (
    SIZE_COLUMNS,
    TYPE_COLUMNS,
    TensorSummary,
    by_tree,
    pruning_figures,
)
from tensorcomp.planning.budgets import NO_FEEDBACK, NO_STATISTICS

if TYPE_CHECKING:
    from tensorcomp.api.plan import PlanReport

GAP = (
    "Gap: bits per weight above log₂(1 / rel-L2), what Gaussian weights of one scale take at "
    "least; below 0 where scales differ or weights are not Gaussian"
)
_REASONS = 3  # listed for one tree


def tensor_legend(summary: CheckpointSummary, width: int | None) -> Iterator[str]:
    """Yield lines that explain the table of all tensors.

    The table is shown in `width` columns.
    """
    if width is not None and not summary.table().fits(width):
        yield from _trees_legend(summary.tensors, width)
        yield from _roles_legend(summary.tensors, width)


def cost_table(summary: CheckpointSummary, most: int = 8) -> Table:
    """Return a table of the tensors that take most bytes.

    All others are one row.
    """
    costly = sorted(summary.tensors, key=lambda row: -row.stored)
    shown = [row for row in costly[:most] if row.stored]
    rest = summary.output_bytes - sum(row.stored for row in shown)
    others = len(costly) - len(shown)

    def share(nbytes: int) -> str:
        return f"{100 * nbytes / summary.output_bytes:.1f} %"

    columns = (
        Column("Tensors that cost most", "", lambda row: row.name, printable, left=True),
        *TYPE_COLUMNS,
        SIZE_COLUMNS[0],
        Column("Share", "", lambda row: share(row.stored)),
        *SIZE_COLUMNS[1:],
    )
    header = "the rest of the file" if summary.has_rest else "the header"
    label = f"{counted(others, 'other')} and {header}" if others else header
    total: dict[str, Value] = {"Tensors that cost most": label, "bytes": rest, "Share": share(rest)}
    return Table(columns, shown, total if shown else {})


def _trees_legend(rows: Iterable[TensorSummary], width: int) -> Iterator[str]:
    trees = by_tree(rows)
    if trees:
        yield "Trees"
    for number, (tree, used) in enumerate(trees.items(), 1):
        before, after = sum(row.nbytes for row in used), sum(row.stored for row in used)
        count = f"{counted(len(used), 'tensor')}, {bytes_text(before)} in {bytes_text(after)}"
        reasons = fold(f"{count}: {_reasons(row.reason for row in used)}", max(width - 3, 20))
        yield from fold(f"{number}  {printable(tree)}", width).split("\n")
        yield from (f"   {line}" for line in reasons.split("\n"))
    if trees:
        yield ""


def _roles_legend(rows: Iterable[TensorSummary], width: int) -> Iterator[str]:
    roles: dict[str, list[str]] = {}
    for row in rows:
        if row.role_reason:
            roles.setdefault(row.role, []).append(row.role_reason)
    if roles:
        yield "Roles"
    for role, whys in sorted(roles.items()):
        line = f"{role}, {counted(len(whys), 'tensor')}: {_reasons(whys)}"
        yield from fold(line, width).split("\n")
    if roles:
        yield ""


def _reasons(whys: Iterable[str]) -> str:
    """Return the most common reasons, and how many more there are."""
    common = Counter(whys).most_common()
    listed = "; ".join(printable(reason) for reason, _ in common[:_REASONS])
    return f"{listed}; {len(common) - _REASONS:,} more" if len(common) > _REASONS else listed


def pruning_line(summary: CheckpointSummary) -> list[str]:
    """Return lines of the pruned weights, the cost of pruning, and what was left.

    Empty if nothing was pruned.
    """
    found, left = summary.pruning(), _left(summary.tensors)
    if found is None:
        return left
    cost = "at no error"
    if found["worst_rel_l2"]:
        snr = max(-20 * math.log10(found["worst_rel_l2"]), 0.0)
        cost = f"which alone leaves each tensor an SNR ≥ {snr_text(snr)} dB"
    if found["kept_snr_db"] is not None:
        tenths = math.floor(10 * found["kept_snr_db"] + 1e-6)
        cost += f"; the weights that are left have one ≥ {snr_text(tenths / 10)} dB"
    return [f"{_what(found)}, {cost}", *left]


def lost_rows(summary: CheckpointSummary) -> list[str]:
    """Return a warning of tensors that lost rows; none if there are none."""
    rows = summary.with_lost_rows
    if not rows:
        return []
    names = ", ".join(printable(row.name) for row in rows[:_REASONS])
    more = f" and {len(rows) - _REASONS:,} more" if len(rows) > _REASONS else ""
    return [
        f"warning: rows of {names}{more} lost half of their norm or more, which the error of the "
        "tensor hides: limit their error by --max-abs-error, or keep them by --codec NAME=lossless"
    ]


def remarks(summary: CheckpointSummary) -> list[str]:
    """Return lines about copied files, pruning, statistics and lost rows."""
    lines = [*pruning_line(summary), *without_statistics(summary.tensors)]
    return [*summary.bases_line(), *summary.copied_line(), *lines, *lost_rows(summary)]


def without_statistics(rows: Iterable[TensorSummary]) -> list[str]:
    """Return lines that name tensors whose statistics lack or are not used."""
    names: dict[str, list[str]] = {}
    for row in rows:
        why = row.reason.partition(NO_FEEDBACK)[2].partition(";")[0]
        if why or NO_STATISTICS in row.reason:
            names.setdefault(why, []).append(row.name)
    return [
        f"without feedback, since {printable(why)}: {listed(some)}"
        if why
        else f"no statistics of {counted(len(some), 'tensor')}: {listed(some)}"
        for why, some in names.items()
    ]


def planned_line(report: PlanReport) -> list[str]:
    """Return lines of what a plan prunes, and what it has no statistics of."""
    records = [(row.pruned, row.weights) for row in report.tensors if row.pruned is not None]
    lines = without_statistics(report.tensors)
    if not records:
        return lines
    what = f"{_what(pruning_figures(records))}; errors are those of the others"
    return [what, *_left(report.tensors), *lines]


def _left(rows: Iterable[TensorSummary]) -> list[str]:
    """Return lines that name the tensors that were not pruned or repaired, though asked for."""
    names: dict[str, list[str]] = {}
    rows = list(rows)
    for row in rows:
        if row.unpruned:
            names.setdefault(row.unpruned, []).append(row.name)
    lines = [f"not pruned: {listed(some)}: {printable(why)}" for why, some in names.items()]
    records = {row.name: row.pruned for row in rows if row.pruned is not None}
    left = [name for name, record in records.items() if not record.repaired]
    if left and len(left) < len(records):
        lines.append(f"not repaired: {listed(left)}: calibrate measured no second_moment of them")
    return lines


def _what(found: dict[str, Any]) -> str:
    how = f"{' and '.join(found['scores'])}, {' and '.join(found['granularities'])}"
    weights = f"{found['count']:,} of {found['weights']:,} weights, {percent(found['sparsity'])}"
    what = "pruned and repaired" if "repaired" in found else "pruned"
    return f"{what} ({printable(how)}): {weights}"
