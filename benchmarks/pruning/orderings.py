"""Which method is better, as literature has it, and whether that is so here.

Means and deviations are over seeds. `a ≪ b`: a is lower with every seed, and its mean by more than
both deviations together. `a ≈ b`: the means differ by no more than that. `a ≤ b`, `a < b`: of
means. `a keeps b`: a's mean is no lower than b's less b's deviation.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.common.reporting import Limit, Sheet, spread
from benchmarks.pruning.methods import (
    DENSE,
    GRASP,
    METHODS,
    RANDOM,
    REDRAWN,
    SHUFFLED_GRASP,
    SHUFFLED_SNIP,
    SNIP,
    SYNFLOW,
    TICKET,
    TUNED,
    MethodRow,
)

Rows = Mapping[tuple[str, str, float], MethodRow]


def _far_below(low: MethodRow, high: MethodRow) -> bool:
    pairs = zip(low.accuracies, high.accuracies, strict=True)
    return high.mean - low.mean > low.spread + high.spread and all(a < b for a, b in pairs)


SIGNS: dict[str, Callable[[MethodRow, MethodRow], bool]] = {
    "≪": _far_below,
    "≈": lambda one, other: abs(one.mean - other.mean) <= one.spread + other.spread,
    "≤": lambda low, high: low.mean <= high.mean,
    "<": lambda low, high: low.mean < high.mean,
    "keeps": lambda one, aim: one.mean >= aim.mean - aim.spread,
}
# What is expected, and at which sparsity it is required.
ORDERINGS: dict[tuple[str, str, str], float | None] = {
    (RANDOM, "≪", SNIP): 0.98,
    (SNIP, "≈", GRASP): None,
    (SNIP, "≈", SYNFLOW): None,
    (GRASP, "≈", SYNFLOW): None,
    (SNIP, "≤", TUNED): 0.95,
    (GRASP, "≤", TUNED): 0.95,
    (SYNFLOW, "≤", TUNED): 0.95,
    (TICKET, "keeps", DENSE): 0.95,
    (REDRAWN, "<", TICKET): 0.95,
    (SHUFFLED_SNIP, "≈", SNIP): 0.95,
    (SHUFFLED_GRASP, "≈", GRASP): None,
}


@dataclass(frozen=True)
class Verdict:
    """An ordering at a sparsity; `difference` is second less first, in points."""

    case: str
    ordering: str
    sparsity: float
    difference: float
    holds: bool
    required: bool


def verdicts(rows: Sequence[MethodRow]) -> Iterator[Verdict]:
    """Judge every ordering of which both methods were run, at each sparsity."""
    found: Rows = {(row.case, row.method, row.sparsity): row for row in rows}
    for case in dict.fromkeys(row.case for row in rows):
        sparsities = sorted({row.sparsity for row in rows if row.case == case and row.sparsity})
        for (one, sign, other), required in ORDERINGS.items():
            for sparsity in sparsities:
                first = _of(found, case, one, sparsity)
                second = _of(found, case, other, sparsity)
                if first is not None and second is not None:
                    holds = SIGNS[sign](first, second)
                    difference = second.mean - first.mean
                    text = f"{one} {sign} {other}"
                    yield Verdict(case, text, sparsity, difference, holds, sparsity == required)


def _of(rows: Rows, case: str, method: str, sparsity: float) -> MethodRow | None:
    return rows.get((case, method, 0.0 if method == DENSE else sparsity))


def method_sheet(case: str, rows: Sequence[MethodRow], about: str) -> Sheet:
    """Tabulate accuracies, methods down and sparsities across."""
    own = sorted(
        (row for row in rows if row.case == case and row.method in METHODS),
        key=lambda row: (METHODS.index(row.method), row.sparsity),
    )
    cells = {(row.method, f"{row.sparsity:.0%}"): spread(row.mean, row.spread) for row in own}
    dense = next((row for row in rows if (row.case, row.method) == (case, DENSE)), None)
    before = "" if dense is None else f", dense {spread(dense.mean, dense.spread)}"
    title = f"{case}: held-out accuracy in % by sparsity{before}; {about}"
    return Sheet.pivot(title, "method", cells)


def verdict_sheet(case: str, rows: Sequence[MethodRow]) -> Sheet:
    """Tabulate orderings: whether they hold, and the difference in points."""
    cells = {
        (verdict.ordering, f"{verdict.sparsity:.0%}"): (
            f"{'holds' if verdict.holds else 'does not hold'} ({verdict.difference:+.2f})"
        )
        for verdict in verdicts(rows)
        if verdict.case == case
    }
    title = f"{case}: expected orderings, with second less first in points"
    return Sheet.pivot(title, "ordering", cells)


def method_limits(rows: Sequence[MethodRow]) -> list[Limit]:
    """Require what is expected most of all."""
    return [
        Limit(
            f"{verdict.case}, {verdict.sparsity:.0%}: {verdict.ordering}; 1 if it holds",
            float(verdict.holds),
            1.0,
            at_most=False,
        )
        for verdict in verdicts(rows)
        if verdict.required
    ]
