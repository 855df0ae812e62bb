"""Files that must keep a size: written, and written again with corrected rates until they do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorcomp.errors import PlanError
from tensorcomp.planning import CheckpointPlan, Draft
from tensorcomp.reports.outcome import Report

_PASSES = 6  # the second is mostly the last
_CLOSE = 0.995  # of the size: what is used of it at least, if there is anything to use it for


def write_within(
    draft: Draft,
    most: int | None,
    order: Sequence[str],
    write: Callable[[CheckpointPlan], list[Report]],
) -> list[Report]:
    """Settle a draft and write its files, again and again until they keep a size.

    Parameters
    ----------
    draft : Draft
    most : int or None
        Bytes of all files together; None if there is no limit.
    order : sequence of str
        The tensors, as they stand in the checkpoint.
    write : callable
        Writes all files under a plan, in place of what it wrote before, and reports on each.

    Returns
    -------
    list of Report
        Of the last time.

    Raises
    ------
    PlanError
        If the size cannot be kept.
    """
    for _ in range(_PASSES):
        plan = draft.settle(most, order)
        reports = write(plan)
        total = sum(report.output_bytes for report in reports)
        if most is None or _CLOSE * most <= total <= most:
            return reports
        if total <= most and not draft.can_grow(plan):
            return reports
        sizes = {item.record.name: item.nbytes for report in reports for item in report.tensors}
        draft = draft.corrected(plan, sizes, total - sum(sizes.values()))
    if most is None or total <= most:
        return reports
    raise PlanError(f"the smallest plan found takes {total:,} bytes; {most:,} are allowed")
