"""tiny_lm with half of the weights of its layers pruned, and what repair gives back.

Where weights are compared is each score's own choice: Wanda and OBS within a row, magnitude over
all layers; 2:4 keeps two of four in a row. Values are lossless. SparseGPT reports the direction:
with its repair too, 2:4 is worse than half of the weights anywhere (Frantar & Alistarh 2023).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.calibrated.rates import USUAL, above
from benchmarks.calibrated.samples import tiny_lm_statistics
from benchmarks.common.models import tiny_lm
from benchmarks.common.reporting import Limit, Sheet, number
from tensorcomp import load, save
from tensorcomp.pruning import Pruning, Statistics

ANYWHERE, TWO_OF_FOUR = "50 %", "2:4"
PATTERNS: dict[str, dict[str, Any]] = {
    ANYWHERE: {"sparsity": 0.5},
    TWO_OF_FOUR: {"granularity": "nm(2, 4)"},
}
CHOSEN = ("magnitude", "wanda", "obs")
REPAIRED = 0.8  # % of perplexity


@dataclass(frozen=True)
class PrunedRow:
    """Held-out perplexity above the original's, in per cent, by sample."""

    score: str
    pattern: str
    repaired: bool
    quality: tuple[float, ...]

    @property
    def text(self) -> str:
        """The median, and the range of several samples."""
        found = number(median(self.quality))
        if len(set(self.quality)) == 1:
            return found
        return f"{found} ({number(min(self.quality))}–{number(max(self.quality))})"


def pruned_rows(seeds: Sequence[int]) -> Iterator[PrunedRow]:
    """Prune by every score, with repair and without."""
    samples = [tiny_lm_statistics(*USUAL, seed) for seed in seeds]
    for score in CHOSEN:
        for pattern in PATTERNS:
            for repaired in (False, True):
                known = samples if repaired or score != "magnitude" else [None]
                quality = tuple(_quality(score, pattern, one, repaired=repaired) for one in known)
                yield PrunedRow(score, pattern, repaired, quality)


def _quality(score: str, pattern: str, statistics: Statistics | None, *, repaired: bool) -> float:
    pruning = Pruning(score, stats=statistics, repair=repaired, **PATTERNS[pattern])
    return above(load(save(tiny_lm(), prune=pruning)))


def pruned_sheet(rows: Iterable[PrunedRow]) -> Sheet:
    """Tabulate scores down, patterns across."""
    cells = {
        (row.score, f"{row.pattern}{', repaired' * row.repaired}"): row.text
        for row in sorted(rows, key=lambda row: row.repaired)
    }
    title = (
        "tiny_lm: held-out perplexity above the original's, %, with half of the layers' weights "
        "pruned; medians (and ranges) of samples"
    )
    return Sheet.pivot(title, "score", cells)


def pruned_limits(rows: Iterable[PrunedRow]) -> list[Limit]:
    """Judge what is repaired."""
    found = {(row.score, row.pattern, row.repaired): median(row.quality) for row in rows}
    repaired = {key[:2]: value for key, value in found.items() if key[2]}
    limits = [
        Limit(f"{score}, {pattern}: repaired, % of perplexity", value, found[score, pattern, False])
        for (score, pattern), value in repaired.items()
    ]
    best = [value for (_, pattern), value in repaired.items() if pattern == ANYWHERE]
    what = f"{ANYWHERE}, repaired, the best score: % of perplexity"
    return [*limits, Limit(what, min(best), REPAIRED)]
