"""Kill every writer before each system call that changes files, and at random instants.

    python -m benchmarks.hardening.kills [--scale 0.1] [--seed 1] [--only NAME] [--markdown]

strace lists the calls of a sound run, and kills a further run before each: writes, truncations,
syncs, renamings, removals, new folders and openings for writing. Afterwards what was there, or what
is written in its place, must be whole, and the next run must succeed and leave nothing else.
"""

import random
import signal
import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import typer

from benchmarks.common.reporting import Found, JsonPath, Limit, Markdown, Sheet, end, note
from benchmarks.hardening.jobs import WRITERS, Writer
from benchmarks.hardening.tracing import CHANGES, Call, calls, inject, run

AT_RANDOM = 12  # kills of each writer


def leftovers(folder: Path) -> list[str]:
    """Return names of files that only a run in progress may have."""
    return [path.name for path in folder.rglob("*") if "tensorcomp-" in path.name]


def faults(writer: Writer, call: Call | None, seconds: float = 0.0) -> list[str]:
    """Kill one run before a call or after a time, check what it left, and run again."""
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        folder = Path(name)
        writer.prepare(folder)
        strace = inject(call, "signal=KILL") if call is not None else ()
        killed = run(partial(writer.run, folder), *strace, kill_after=seconds)
        if killed.status not in {-signal.SIGKILL} | ({0} if call is None else set()):
            return [f"ended with {killed}"]
        return [*_wrong(writer, folder, "killed"), *ended_well(writer, folder)]


def ended_well(writer: Writer, folder: Path) -> list[str]:
    """Run once more; return what is wrong then."""
    ended = run(partial(writer.run, folder))
    if ended.status:
        return [f"the next run ended with {ended}"]
    wrong = _wrong(writer, folder, "run again")
    return [*wrong, f"left behind {left}"] if (left := leftovers(folder)) else wrong


def _wrong(writer: Writer, folder: Path, when: str) -> list[str]:
    try:
        writer.check(folder)
    except Exception as error:
        return [f"{when}: {error!r}"]
    return []


def sound(writer: Writer) -> tuple[list[Call], float]:
    """Return the calls of a sound run, and the time that one takes untraced."""
    with tempfile.TemporaryDirectory() as traced, tempfile.TemporaryDirectory() as timed:
        for folder in (traced, timed):
            writer.prepare(Path(folder))
        with tempfile.TemporaryDirectory() as first:
            writer.prepare(Path(first))
            writer.run(Path(first))  # which imports
        known = calls(partial(writer.run, Path(traced)), Path(traced), CHANGES)
        return known, run(partial(writer.run, Path(timed))).seconds


class Row(NamedTuple):
    """A writer, its kills and what they found."""

    name: str
    calls: int
    instants: int
    faults: int


def main(
    scale: Annotated[float, typer.Option(help="Share of the calls and instants.")] = 1.0,
    seed: int = 1,
    only: Annotated[str, typer.Option(help="Writers whose name holds this.")] = "",
    json_path: JsonPath = None,
    markdown: Markdown = False,
) -> None:
    """Kill every writer and print a table of them; end with status 1 if anything was found."""
    torch.set_num_threads(1)
    generator = random.Random(seed)
    rows = []
    for name, writer in WRITERS.items():
        if only not in name:
            continue
        known, seconds = sound(writer)
        chosen = generator.sample(known, max(round(scale * len(known)), 1))
        instants = [generator.uniform(1e-3, seconds) for _ in range(round(scale * AT_RANDOM))]
        tries: list[tuple[Any, ...]] = [(call,) for call in chosen]
        tries += [(None, instant) for instant in instants]
        bad = 0
        for given in tries:
            found = faults(writer, *given)
            bad += bool(found)
            for fault in found:
                note(f"{name}, {given}: {fault}")
        rows.append(Row(name, len(chosen), len(instants), bad))
        note(str(rows[-1]))
    counts = zip(*(row[1:] for row in rows), strict=True)
    rows.append(Row("in all", *map(sum, counts)))
    columns = ("writer", "kills before a call", "at random instants", "faults")
    cells = tuple((row[0], *(f"{value:,}" for value in row[1:])) for row in rows)
    found_all = Found([Sheet("Writers that were killed", columns, cells)])
    found_all.limits = [Limit("kills with a fault", rows[-1].faults, 0)]
    end(found_all, ["tensorcomp", "torch"], markdown=markdown, json_path=json_path)


if __name__ == "__main__":
    typer.run(main)
