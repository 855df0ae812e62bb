"""What statistics cost in time: compressing MiniLM without them and with them, in turns."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import median

from benchmarks.calibrated.rates import EFFORTS, at_bits
from benchmarks.common.checkpoints import minilm
from benchmarks.common.reporting import Columns, Limit, Sheet
from tensorcomp.pruning import Statistics

BITS = 3.0
MOST = 10.0


@dataclass(frozen=True)
class SpeedRow:
    """Seconds of compressing, from memory to memory, by round."""

    effort: str
    without: tuple[float, ...]
    calibrated: tuple[float, ...]

    @property
    def times(self) -> float:
        """Return how many times as long it takes with statistics: the median over rounds."""
        pairs = zip(self.calibrated, self.without, strict=True)
        return median(slow / fast for slow, fast in pairs)


def speed_rows(statistics: Statistics, rounds: int) -> Iterator[SpeedRow]:
    """Time compressing."""
    for effort in EFFORTS:
        seconds: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(rounds):
            for calibrated, found in seconds.items():
                measured = statistics if calibrated else None
                start = time.perf_counter()
                at_bits(minilm(), BITS, measured, effort, "transformer")
                found.append(time.perf_counter() - start)
        yield SpeedRow(effort, tuple(seconds[False]), tuple(seconds[True]))


def speed_sheet(rows: Iterable[SpeedRow]) -> Sheet:
    """Tabulate seconds."""
    columns: Columns = {
        "effort": lambda row: row.effort,
        "without, s": lambda row: f"{median(row.without):.1f}",
        "with statistics, s": lambda row: f"{median(row.calibrated):.1f}",
        "times": lambda row: f"{row.times:.1f}",
    }
    return Sheet.of(
        f"MiniLM in {BITS:g} bits a weight: compressing and reading back", rows, columns
    )


def speed_limits(rows: Iterable[SpeedRow]) -> list[Limit]:
    """Judge how much longer it takes."""
    return [
        Limit(f"MiniLM, {row.effort}: times as long with statistics", row.times, MOST)
        for row in rows
    ]
