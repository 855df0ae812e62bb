"""Gradients on the wire: bytes, seconds of a step and of coding, and what more ranks would cost.

Run it as `python -m benchmarks.gradients` after `pip install -e '.[bench]'`, as root: ranks are
processes with links of their own, in network namespaces that it makes and deletes. Where that is
not allowed it says why, and does the rest. All of it takes less than 12 minutes on two cores.
"""

import signal
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from benchmarks.common.reporting import Found, JsonPath, Markdown, note, report
from benchmarks.gradients.links import RATES, UNSHAPED, LinkError, check_rate, why_not
from benchmarks.gradients.scaling import scaling_limits, scaling_rows, scaling_sheet
from benchmarks.gradients.speed import speed_limits, speed_rows, speed_sheet
from benchmarks.gradients.verdicts import (
    failure_sheet,
    overhead_limits,
    overhead_sheet,
    spent_sheet,
    wire_limits,
    wire_sheet,
)
from benchmarks.gradients.ways import ADAPTIVE, DENSE, FP16, NOTHING, OWNED, PLAIN, TOP_K, WAYS
from benchmarks.gradients.wire import WireRow, overhead_rows, wire_rows

PACKAGES = ("tensorcomp", "torch", "numpy")
PARAMETERS = 11_173_962
WORLDS = (2, 4)
MODEL_WORLD = 3  # between them, for the cost model alone
MODEL_RATE = "100mbit"
MODEL_WAYS = (PLAIN, NOTHING, FP16, TOP_K, OWNED)
OVERHEAD_WAYS = (PLAIN, DENSE, ADAPTIVE)
SPEED_ROUNDS = 15
BUDGET = 4.0  # seconds of a cell after which no more steps are begun


class Part(StrEnum):
    """A part of the benchmark."""

    WIRE = "wire"
    OVERHEAD = "overhead"
    SPEED = "speed"


def add_wire(
    found: Found, worlds: Sequence[int], rates: Sequence[str], ways: Sequence[str], steps: int
) -> None:
    """Measure all ways over all links; compare the cost model with what came out."""
    rows: list[WireRow] = []
    found.rows["wire"] = rows
    for world in worlds:
        rows += wire_rows(world, rates, ways, steps, BUDGET)
        found.sheets.append(wire_sheet(rows, world))
    more = () if MODEL_WORLD in worlds else (MODEL_WORLD,)
    model_ways = tuple(way for way in MODEL_WAYS if way in ways)
    modelled = list(rows)
    for world in more:
        modelled += wire_rows(world, (MODEL_RATE,), model_ways, 3, BUDGET)
    compared = scaling_rows(modelled, PARAMETERS)
    found.sheets += [spent_sheet(rows), failure_sheet(modelled)]
    found.sheets.append(scaling_sheet(compared))
    found.limits += wire_limits(rows, PARAMETERS) + scaling_limits(compared)
    found.rows["scaling"] = list(compared)


def add_overhead(found: Found, world: int) -> None:
    """Measure what it costs to be ready to compress where that does not pay."""
    rows = overhead_rows(world, OVERHEAD_WAYS)
    found.sheets.append(overhead_sheet(rows))
    found.limits += overhead_limits(rows)
    found.rows["overhead"] = list(rows)


def add_speed(found: Found) -> None:
    """Time compressors on one core."""
    rows = speed_rows(SPEED_ROUNDS)
    found.sheets.append(speed_sheet(rows))
    found.limits += speed_limits(rows)
    found.rows["speed"] = list(rows)


def chosen_ways(only: Sequence[str] | None) -> tuple[str, ...]:
    """Return the ways whose names hold one of some texts; all if there are no texts.

    Raises
    ------
    typer.BadParameter
        If a text is in no name.
    """
    if not only:
        return tuple(WAYS)
    for text in only:
        if not any(text.lower() in way.lower() for way in WAYS):
            raise typer.BadParameter(f"no way is called like {text!r}; there are: {list(WAYS)}")
    return tuple(way for way in WAYS if any(text.lower() in way.lower() for text in only))


def main(
    parts: Annotated[
        list[Part] | None, typer.Option("--part", help="A part; all by default.")
    ] = None,
    worlds: Annotated[
        list[int] | None, typer.Option("--world", min=2, max=16, help="Ranks: 2 and 4 by default.")
    ] = None,
    rates: Annotated[
        list[str] | None,
        typer.Option("--rate", help=f"Of links: 100mbit, 1gbit and {UNSHAPED} by default."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Ways whose names hold this text.")
    ] = None,
    steps: Annotated[int, typer.Option(min=3, help="Measured steps of a cell, at most.")] = 9,
    json_path: JsonPath = None,
    markdown: Markdown = False,
) -> None:
    """Train over shaped links, and time compressors."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that namespaces are deleted
    for rate in rates or ():
        try:
            check_rate(rate)
        except LinkError as error:
            raise typer.BadParameter(str(error)) from None
    sizes = tuple(dict.fromkeys(worlds or WORLDS))
    without_links = why_not()
    found = Found()
    for part in dict.fromkeys(parts or Part):
        if part != Part.SPEED and without_links is not None:
            note(f"skipped, {part}: {without_links}")
        elif part == Part.WIRE:
            add_wire(found, sizes, tuple(dict.fromkeys(rates or RATES)), chosen_ways(only), steps)
        elif part == Part.OVERHEAD:
            add_overhead(found, sizes[0])
        else:
            add_speed(found)
    about = {
        "ranks": "one process and one thread of torch each; W > 2 share two cores, and their "
        "seconds are longer than on machines of their own; bytes are exact",
        "links": without_links
        or "veth pairs shaped by tbf in both directions; bytes are "
        "those of the interface's counters; three steps or more are discarded",
    }
    report(found, PACKAGES, about, markdown=markdown, json_path=json_path)


if __name__ == "__main__":
    typer.run(main)
