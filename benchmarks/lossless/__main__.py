"""Lossless compression of real checkpoints beside ZipNN and others, memory to memory.

Run it as `python -m benchmarks.lossless` after `pip install -e '.[bench]'`. Everything tensorcomp's
`save` and `load` do is in its times; every result is complete in new memory when the clock stops.
Each codec has a process of its own, so that none gains from another's allocator settings.
"""

import json
import platform
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.common.checkpoints import (
    CHECKPOINT_NAMES,
    INPUT_NAMES,
    STRUCTURED_NAMES,
    Input,
    load,
)
from benchmarks.common.machine import machine
from benchmarks.common.peers import PEERS, Peer
from benchmarks.common.reporting import WIDTH_WITHOUT_TERMINAL, JsonPath, Markdown
from benchmarks.lossless import tables
from benchmarks.lossless.targets import Inputs, Results
from benchmarks.lossless.timing import Measurement, measure

SLOW_ROUNDS = 3
QUICK_ROUNDS = 3


def described(peers: Sequence[Peer], rounds: int, threads: int) -> dict[str, str]:
    """Tell what the figures were taken on and with."""
    packages = {peer.package: peer.version() for peer in peers}
    slow = ", ".join(peer.name for peer in peers if peer.slow)
    fewer = f" ({min(rounds, SLOW_ROUNDS)} of {slow})" if slow else ""
    return {
        "machine": machine(),
        "python": platform.python_version(),
        "packages": ", ".join(f"{name} {found}" for name, found in packages.items()),
        "threads": f"{threads} for each codec",
        "processes": "one for each codec, so that none gains from another's allocator settings",
        "rounds": f"median of {rounds}{fewer}, interleaved",
        "notes": "; ".join(f"{peer.name}: {peer.note}" for peer in peers if peer.note),
    }


def chosen(names: Sequence[str] | None, known: Sequence[str], what: str) -> list[str]:
    """Return the known names that were asked for, all by default."""
    unknown = set(names or ()) - set(known)
    if unknown:
        message = f"no {what} called {', '.join(sorted(unknown))}; there are {', '.join(known)}"
        raise typer.BadParameter(message)
    return [name for name in known if not names or name in names]


def available(peers: Iterable[Peer], notes: Console) -> list[Peer]:
    """Return the peers that can run, and tell why the others cannot."""
    running = []
    for peer in peers:
        reason = peer.unavailable()
        if reason is None:
            running.append(peer)
        else:
            notes.print(f"{peer.name} is left out: {reason}", markup=False)
    return running


def load_available(names: Iterable[str], notes: Console) -> Iterable[Input]:
    """Build the inputs one by one, and tell which package those that cannot be built need."""
    for name in names:
        try:
            yield load(name)
        except (FileNotFoundError, ImportError) as error:
            notes.print(f"{name} is left out: {error}", markup=False)


def tell_failures(data: Input, results: dict[str, Measurement], notes: Console) -> None:
    """Print the whole error of each peer that failed, for which a table has no room."""
    for name, result in results.items():
        if result.error is not None:
            notes.print(f"{name} fails on {data.name}: {result.error}", markup=False)


def summaries(inputs: Inputs, results: Results) -> list[tables.Sheet]:
    """Return the tables that the README shows."""
    speeds = "Real checkpoints: size as a fraction of the input (encode / decode in MB/s)"
    ratios = "Structured inputs: input size over encoded size"
    sheets = [
        tables.summary_sheet(speeds, CHECKPOINT_NAMES, inputs, results, tables.speeds_cell),
        tables.summary_sheet(ratios, STRUCTURED_NAMES, inputs, results, tables.ratio_cell),
    ]
    return [sheet for sheet in sheets if sheet.rows]


def main(
    inputs: Annotated[
        list[str] | None, typer.Option("--input", help="Run this input only (may be repeated).")
    ] = None,
    codecs: Annotated[
        list[str] | None, typer.Option("--codec", help="Run this codec only (may be repeated).")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds of each codec.")] = 9,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each codec.")] = 2,
    quick: Annotated[
        bool, typer.Option("--quick", help="At most three rounds, without the slow codecs.")
    ] = False,
    json_path: JsonPath = None,
    markdown: Markdown = False,
) -> None:
    """Measure tensorcomp and its peers on real checkpoints, interleaved round by round."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL)
    notes = Console(stderr=True, soft_wrap=True)
    names = chosen(codecs, [peer.name for peer in PEERS], "codec")
    wanted = [peer for peer in PEERS if peer.name in names and not (quick and peer.slow)]
    running = available(wanted, notes)
    rounds = min(rounds, QUICK_ROUNDS) if quick else rounds
    plan = {peer.name: min(rounds, SLOW_ROUNDS) if peer.slow else rounds for peer in running}
    loaded: dict[str, Input] = {}
    results: dict[str, dict[str, Measurement]] = {}
    for data in load_available(chosen(inputs, INPUT_NAMES, "input"), notes):
        loaded[data.name] = data
        results[data.name] = measure(running, data.name, plan, threads)
        tell_failures(data, results[data.name], notes)
        if not markdown:
            console.print(tables.result_sheet(data, results[data.name]).rich())
    targets = tables.target_sheet(loaded, results)
    about = described(running, rounds, threads)
    if markdown:
        for sheet in (*summaries(loaded, results), targets):
            print(sheet.markdown())
        print("\n".join(f"- {key}: {value}" for key, value in about.items()))
    else:
        console.print(targets.rich())
        for key, value in about.items():
            console.print(f"{key}: {value}", markup=False, highlight=False)
    if json_path is not None:
        json_path.write_text(json.dumps(tables.as_json(about, loaded, results), indent=1))


if __name__ == "__main__":
    typer.run(main)
