"""The cost model beside what was measured at 2, 3 and 4 ranks."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.common.reporting import Columns, Limit, Sheet, number
from benchmarks.gradients.links import RATES
from benchmarks.gradients.verdicts import found_row
from benchmarks.gradients.ways import CODING, DENSE, FP16, NOTHING, OWNED, PAYLOAD, PLAIN, TOP_K
from benchmarks.gradients.wire import WireRow
from tensorcomp.gradients.base import Reduction
from tensorcomp.gradients.cost_model.model import Cost, Link

BYTES_OFF = 0.08  # of the interface's counters, by TCP/IP and frames

_FP32 = 4
_REDUCTIONS: dict[str, Reduction] = {
    PLAIN: "sum",
    FP16: "sum",
    DENSE: "sum",
    TOP_K: "gather",
    OWNED: "reduce_scatter",
}


@dataclass(frozen=True)
class ScalingRow:
    """A way at some number of ranks: what a step's exchange takes, measured and by the model.

    Seconds are those of a step without the seconds of a step that sends nothing; of the model, of
    messages and bytes, and what coding was measured to take.
    """

    way: str
    world: int
    rate: str
    measured_bytes: float
    model_bytes: float
    measured_seconds: float
    model_seconds: float


def scaling_rows(rows: Sequence[WireRow], parameters: int) -> list[ScalingRow]:
    """Compare every row that the model knows to speak of."""
    found = []
    for row in rows:
        reduction = _REDUCTIONS.get(row.way)
        payload = payload_of(row, parameters)
        line = RATES.get(row.rate)
        if reduction is None or payload is None or row.error or line is None:
            continue
        idle = found_row(rows, row.world, row.rate, NOTHING).seconds
        link = Link.of_line(line, row.message)
        coding = sum(row.figures.get(name, 0.0) for name in CODING) / 1e3
        found.append(
            ScalingRow(
                row.way,
                row.world,
                row.rate,
                row.sent,
                Cost(reduction, payload).bytes_sent(row.world),
                row.seconds - idle,
                Cost(reduction, payload).communication(row.world, link) + coding,
            )
        )
    return found


def payload_of(row: WireRow, parameters: int) -> float | None:
    """Return the bytes of a rank's payloads, where they are known."""
    known = {PLAIN: _FP32 * parameters, FP16: _FP32 * parameters / 2, DENSE: _FP32 * parameters}
    return known.get(row.way, row.figures.get(PAYLOAD))


def scaling_sheet(rows: Sequence[ScalingRow]) -> Sheet:
    """Tabulate measurement and model."""
    title = (
        "The cost model beside measurement: bytes on a rank's interface, and the seconds that a "
        "step takes longer than one that sends nothing; coding is as measured in both"
    )
    columns: Columns = {
        "gradients sent by": lambda row: row.way,
        "rate": lambda row: row.rate,
        "ranks": lambda row: str(row.world),
        "MB measured": lambda row: number(row.measured_bytes / 1e6, 3),
        "MB by model": lambda row: number(row.model_bytes / 1e6, 3),
        "quotient": lambda row: number(row.measured_bytes / row.model_bytes, 3),
        "exchange, ms": lambda row: number(1e3 * row.measured_seconds, 0),
        "ms by model": lambda row: number(1e3 * row.model_seconds, 0),
    }
    return Sheet.of(title, sorted(rows, key=lambda row: (row.rate, row.way, row.world)), columns)


def scaling_limits(rows: Sequence[ScalingRow]) -> list[Limit]:
    """Judge how far the model's bytes are from the counters."""
    return [
        Limit(f"model's bytes, W={world}, {way}: off by", worst, BYTES_OFF)
        for way, world in dict.fromkeys((row.way, row.world) for row in rows)
        for worst in [
            max(
                abs(row.measured_bytes / row.model_bytes - 1)
                for row in rows
                if (row.way, row.world) == (way, world)
            )
        ]
    ]
