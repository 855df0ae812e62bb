"""Which method is better, as literature has it, and whether that is so here; published figures.

Means and deviations are over seeds. `a ≪ b`: a is lower with every seed, and its mean by more than
both deviations together. `a ≈ b`: the means differ by no more than that. `a ≤ b`, `a < b`: of
means. `a keeps b`: a's mean is no lower than b's less b's deviation.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.common.reporting import ABSENT, Limit, Sheet
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


def _near(one: MethodRow, other: MethodRow) -> bool:
    return abs(one.mean - other.mean) <= one.spread + other.spread


def _no_better(low: MethodRow, high: MethodRow) -> bool:
    return low.mean <= high.mean


def _worse(low: MethodRow, high: MethodRow) -> bool:
    return low.mean < high.mean


def _keeps(one: MethodRow, aim: MethodRow) -> bool:
    return one.mean >= aim.mean - aim.spread


@dataclass(frozen=True)
class Ordering:
    """Two methods, and how the first is expected to do beside the second."""

    first: str
    sign: str
    second: str

    @property
    def text(self) -> str:
        """Return the ordering as it is read."""
        return f"{self.first} {self.sign} {self.second}"


SIGNS: dict[str, Callable[[MethodRow, MethodRow], bool]] = {
    "≪": _far_below,
    "≈": _near,
    "≤": _no_better,
    "<": _worse,
    "keeps": _keeps,
}
ORDERINGS = (
    Ordering(RANDOM, "≪", SNIP),
    Ordering(SNIP, "≈", GRASP),
    Ordering(SNIP, "≈", SYNFLOW),
    Ordering(GRASP, "≈", SYNFLOW),
    Ordering(SNIP, "≤", TUNED),
    Ordering(GRASP, "≤", TUNED),
    Ordering(SYNFLOW, "≤", TUNED),
    Ordering(TICKET, "keeps", DENSE),
    Ordering(REDRAWN, "<", TICKET),
    Ordering(SHUFFLED_SNIP, "≈", SNIP),
    Ordering(SHUFFLED_GRASP, "≈", GRASP),
)


@dataclass(frozen=True)
class Verdict:
    """Whether an ordering holds at a sparsity; `difference` is second less first, in points."""

    case: str
    ordering: str
    sparsity: float
    difference: float
    holds: bool


def verdicts(rows: Sequence[MethodRow]) -> Iterator[Verdict]:
    """Judge every ordering of which both methods were run, at each sparsity."""
    found: Rows = {(row.case, row.method, row.sparsity): row for row in rows}
    for case in dict.fromkeys(row.case for row in rows):
        sparsities = sorted({row.sparsity for row in rows if row.case == case and row.sparsity})
        for ordering in ORDERINGS:
            for sparsity in sparsities:
                first = _of(found, case, ordering.first, sparsity)
                second = _of(found, case, ordering.second, sparsity)
                if first is not None and second is not None:
                    holds = SIGNS[ordering.sign](first, second)
                    difference = second.mean - first.mean
                    yield Verdict(case, ordering.text, sparsity, difference, holds)


def _of(rows: Rows, case: str, method: str, sparsity: float) -> MethodRow | None:
    return rows.get((case, method, 0.0 if method == DENSE else sparsity))


def method_sheet(case: str, rows: Sequence[MethodRow], about: str) -> Sheet:
    """Tabulate accuracies, methods down and sparsities across."""
    found = {(row.method, row.sparsity): row for row in rows if row.case == case}
    sparsities = sorted({sparsity for _, sparsity in found if sparsity})
    dense = found.get((DENSE, 0.0))
    body = []
    for method in METHODS:
        cells = [
            f"{row.mean:.2f} ± {row.spread:.2f}" if row is not None else ABSENT
            for sparsity in sparsities
            for row in [found.get((method, sparsity))]
        ]
        if any(cell != ABSENT for cell in cells):
            body.append((method, *cells))
    own = "" if dense is None else f", dense {dense.mean:.2f} ± {dense.spread:.2f}"
    title = f"{case}: held-out accuracy in % by sparsity{own}; {about}"
    return Sheet(title, ("method", *(f"{sparsity:.0%}" for sparsity in sparsities)), tuple(body))


def verdict_sheet(case: str, rows: Sequence[MethodRow]) -> Sheet:
    """Tabulate orderings: whether they hold, and the difference in points."""
    found = [verdict for verdict in verdicts(rows) if verdict.case == case]
    sparsities = sorted({verdict.sparsity for verdict in found})
    by_place = {(verdict.ordering, verdict.sparsity): verdict for verdict in found}
    body = []
    for text in dict.fromkeys(verdict.ordering for verdict in found):
        cells = []
        for sparsity in sparsities:
            verdict = by_place.get((text, sparsity))
            word = "holds" if verdict is not None and verdict.holds else "does not hold"
            cells.append(ABSENT if verdict is None else f"{word} ({verdict.difference:+.2f})")
        body.append((text, *cells))
    title = f"{case}: expected orderings, with second less first in points"
    return Sheet(title, ("ordering", *(f"{sparsity:.0%}" for sparsity in sparsities)), tuple(body))


def method_limits(rows: Sequence[MethodRow]) -> list[Limit]:
    """Judge what is expected most of all, in points of mean accuracy."""
    found: Rows = {(row.case, row.method, row.sparsity): row for row in rows}
    limits = []
    for case in dict.fromkeys(row.case for row in rows):
        limits += list(_limits_at(found, case, 0.95))
        random, snip = (found.get((case, method, 0.98)) for method in (RANDOM, SNIP))
        if random is not None and snip is not None:
            below, spreads = snip.mean - random.mean, random.spread + snip.spread
            what = f"{case}, 98 %: random below SNIP, more than spreads"
            limits.append(Limit(what, below, spreads, at_most=False))
    return limits


def _limits_at(found: Rows, case: str, sparsity: float) -> Iterator[Limit]:
    place = f"{case}, {sparsity:.0%}"
    rows = {method: _of(found, case, method, sparsity) for method in (DENSE, *METHODS)}
    known = {method: row for method, row in rows.items() if row is not None}
    at_start = [known[method] for method in (SNIP, GRASP, SYNFLOW) if method in known]
    if TUNED in known and at_start:
        best = max(row.mean for row in at_start)
        yield Limit(f"{place}: SNIP, GraSP, SynFlow, best", best, known[TUNED].mean)
    if DENSE in known and TICKET in known:
        lost = known[DENSE].mean - known[TICKET].mean
        yield Limit(f"{place}: ticket below dense, within its spread", lost, known[DENSE].spread)
    if REDRAWN in known and TICKET in known:
        what = f"{place}: ticket, above re-initialised"
        yield Limit(what, known[TICKET].mean, known[REDRAWN].mean, at_most=False)
    if SNIP in known and SHUFFLED_SNIP in known:
        snip, shuffled = known[SNIP], known[SHUFFLED_SNIP]
        what = f"{place}: SNIP and its shuffled masks apart, within spreads"
        yield Limit(what, abs(snip.mean - shuffled.mean), snip.spread + shuffled.spread)


PUBLISHED = (
    ("Han et al. 2015, Learning both weights and connections", "full MNIST: both LeNets, 12×"),
    (
        "Lee et al. 2019, SNIP",
        "full MNIST: LeNet-300-100 to 98 % and LeNet-5 (Caffe) to 99 %, with little loss",
    ),
    (
        "Wang et al. 2020, GraSP",
        "no MNIST; VGG-16, ImageNet: 1.6 points of top-1 lost at 80 %",
    ),
    (
        "Tanaka et al. 2020, SynFlow",
        "no MNIST; no layer collapses before all do, others do at high sparsity",
    ),
    (
        "Frankle & Carbin 2019, lottery tickets",
        "MNIST, CIFAR-10: tickets of less than 20 % of the size reach the dense accuracy",
    ),
    (
        "Frankle et al. 2021, Why are we missing the mark?",
        "no MNIST; ResNets, VGG-16: SNIP, GraSP, SynFlow above random and below magnitude after "
        "training; masks shuffled within layers do as well or better",
    ),
    ("Han et al. 2016, Deep Compression", "full MNIST: LeNet-300-100 40×, LeNet-5 39×"),
)


def published_sheet() -> Sheet:
    """Tabulate what was published; other data, so that the figures are not to be compared."""
    return Sheet("Published, on other data than here", ("source", "result"), PUBLISHED)
