"""Tables and limits of what was measured on the wire."""

import math
from collections.abc import Sequence

from benchmarks.common.reporting import ABSENT, Columns, Limit, Sheet, number
from benchmarks.gradients.links import UNSHAPED
from benchmarks.gradients.ways import (
    ADAPTIVE,
    DENSE,
    FP16,
    FRAMED,
    NOTHING,
    PAYLOAD,
    PLAIN,
    TIMES,
    TOP_K,
    TOP_K_SHARE,
    WAYS,
)
from benchmarks.gradients.wire import WireRow

FEWER_BYTES = 180.0
BITS_OF_ENTRY = 17.0
TIMES_PLAIN = 12.0
TIMES_FP16 = 6.0
OVERHEAD = 1.03


def found_row(rows: Sequence[WireRow], world: int, rate: str, way: str) -> WireRow:
    """Return the row of a cell; one without figures if it was not measured."""
    place = (world, rate, way)
    return next((row for row in rows if (row.world, row.rate, row.way) == place), WireRow(*place))


def wire_sheet(rows: Sequence[WireRow], world: int) -> Sheet:
    """Tabulate the ways of so many ranks."""
    rates = list(dict.fromkeys(row.rate for row in rows if row.world == world))
    ways = list(dict.fromkeys(row.way for row in rows if row.world == world))
    body = []
    for way in ways:
        own = [found_row(rows, world, rate, way) for rate in rates]
        cells = [_bytes_cell(own)]
        for row in own:
            plain = found_row(rows, world, row.rate, PLAIN)
            cells += (
                ["FAILS", ABSENT]
                if row.error
                else [number(1e3 * row.seconds, 0), _times(plain.seconds / row.seconds)]
            )
        body.append((way, *cells))
    columns = ["gradients sent by", "MB sent a step"]
    for rate in rates:
        columns += [f"{rate}: ms" if rate != UNSHAPED else "unshaped: ms", "faster"]
    title = f"Steps of ResNet-18 (11.2 M parameters) on {world} ranks, a process each"
    return Sheet(title, tuple(columns), tuple(body))


def _times(value: float) -> str:
    return ABSENT if math.isnan(value) else f"{value:.1f}×"


def _bytes_cell(own: Sequence[WireRow]) -> str:
    """Write the megabytes of a step: once, where they do not depend on the rate."""
    sizes = [row.sent for row in own if not row.error]
    if not sizes:
        return ABSENT
    shown = sizes if max(sizes) > 1.2 * min(sizes) and max(sizes) > 1e5 else [max(sizes)]
    return " / ".join(f"{size / 1e6:.3g}" for size in shown)


def spent_sheet(rows: Sequence[WireRow]) -> Sheet:
    """Tabulate what compressing, exchanging and decoding took of a step, as rank 0 measured it."""
    columns: Columns = {
        "gradients sent by": lambda row: row.way,
        "ranks": lambda row: str(row.world),
        "rate": lambda row: row.rate,
        "encode, ms": lambda row: number(row.figures[TIMES[0]], 1),
        "exchange, ms": lambda row: number(row.figures[TIMES[1]], 1),
        "decode, ms": lambda row: number(row.figures[TIMES[2]], 1),
        "step, ms": lambda row: number(1e3 * row.seconds, 1),
        "payload, MB": lambda row: number(row.figures[PAYLOAD] / 1e6, 3),
        "frames, MB": lambda row: number(row.figures[FRAMED] / 1e6, 3),
        "interface, MB": lambda row: number(row.sent / 1e6, 3),
    }
    return Sheet.of(
        "Where a step's time goes, of compressors", [row for row in rows if row.figures], columns
    )


def failure_sheet(rows: Sequence[WireRow]) -> Sheet:
    """Tabulate what failed, and why."""
    body = tuple((row.way, str(row.world), row.rate, row.error) for row in rows if row.error)
    return Sheet("What failed", ("gradients sent by", "ranks", "rate", "message"), body)


def wire_limits(rows: Sequence[WireRow], parameters: int) -> list[Limit]:
    """Judge bytes and seconds of top-k 1 % with values of 8 bits."""
    limits = []
    for world, rate in dict.fromkeys((row.world, row.rate) for row in rows):
        cells = {row.way: row for row in rows if (row.world, row.rate) == (world, rate)}
        ours = cells.get(TOP_K)
        plain = cells.get(PLAIN)
        if ours is None or plain is None:
            continue
        where = f"W={world}, {rate}: top-k 1 %"
        if world == 2:
            fewer = plain.sent / ours.sent
            limits.append(Limit(f"{where}, times fewer bytes", fewer, FEWER_BYTES, at_most=False))
            entry = 8 * ours.figures.get(FRAMED, float("nan")) / (TOP_K_SHARE * parameters)
            limits.append(Limit(f"{where}, bits an entry, frames included", entry, BITS_OF_ENTRY))
        if rate == "100mbit":
            faster = plain.seconds / ours.seconds
            limits.append(Limit(f"{where}, × plain DDP", faster, TIMES_PLAIN, at_most=False))
            if FP16 in cells:
                faster = cells[FP16].seconds / ours.seconds
                limits.append(Limit(f"{where}, × fp16 hook", faster, TIMES_FP16, at_most=False))
        if rate == "1gbit":
            peers = [
                row.seconds
                for way, row in cells.items()
                if WAYS[way].peer and way != NOTHING and not row.error
            ]
            best = min(peers, default=float("nan"))
            limits.append(Limit(f"{where}, × best peer", best / ours.seconds, 1.0, at_most=False))
    return limits


def overhead_limits(rows: Sequence[WireRow]) -> list[Limit]:
    """Judge what choosing costs where nothing is to be gained."""
    found = {row.way: row for row in rows}
    if PLAIN not in found:
        return []
    plain = found[PLAIN].seconds
    limits = [
        Limit(
            f"unshaped, in turns: {row.way}, × plain DDP's seconds", row.seconds / plain, OVERHEAD
        )
        for row in rows
        if row.way != PLAIN
    ]
    if ADAPTIVE in found:
        choices = found[ADAPTIVE].choices
        other = float(sum(count for text, count in choices.items() if text != DENSE))
        what = "unshaped: parameters that Adaptive does not send dense"
        limits.append(Limit(what, other if choices else float("nan"), 0.0))
    return limits


def overhead_sheet(rows: Sequence[WireRow]) -> Sheet:
    """Tabulate what was measured in turns."""
    plain = next((row.seconds for row in rows if row.way == PLAIN), float("nan"))
    columns: Columns = {
        "gradients sent by": lambda row: row.way,
        "ms": lambda row: number(1e3 * row.seconds, 1),
        "× plain DDP": lambda row: number(row.seconds / plain, 3),
        "error": lambda row: row.error,
    }
    return Sheet.of("Unshaped links, in turns: what compression costs at most", rows, columns)
