"""Lossless compression of real checkpoints beside ZipNN and others, memory to memory.

Run it as `python -m benchmarks.lossless` after `pip install -e '.[bench]'`. Everything tensorcomp's
`save` and `load` do is in its times; every result is complete in new memory when the clock stops.
Each codec has a process of its own, so that none gains from another's allocator settings.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

from benchmarks.common.checkpoints import (
    CHECKPOINT_NAMES,
    INPUT_NAMES,
    STRUCTURED_NAMES,
    Input,
    load,
)
from benchmarks.common.peers import PEERS, Peer
from benchmarks.common.reporting import Found, JsonPath, Markdown, Sheet, note, report
from benchmarks.lossless.tables import ratio_cell, result_sheet, speeds_cell, summary_sheet
from benchmarks.lossless.targets import Inputs, Results, limits
from benchmarks.lossless.timing import Measurement, measure

SLOW_ROUNDS = 3


def chosen(names: Sequence[str] | None, known: Sequence[str], what: str) -> list[str]:
    """Return the known names that were asked for, all by default."""
    unknown = set(names or ()) - set(known)
    if unknown:
        message = f"no {what} called {', '.join(sorted(unknown))}; there are {', '.join(known)}"
        raise typer.BadParameter(message)
    return [name for name in known if not names or name in names]


def available(peers: Iterable[Peer]) -> list[Peer]:
    """Return the peers that can run, and say why the others cannot."""
    running = []
    for peer in peers:
        reason = peer.unavailable()
        if reason is None:
            running.append(peer)
        else:
            note(f"{peer.name} is left out: {reason}")
    return running


def load_available(names: Iterable[str]) -> Iterable[Input]:
    """Build the inputs one by one, and say which package those that cannot be built need."""
    for name in names:
        try:
            yield load(name)
        except (FileNotFoundError, ImportError) as error:
            note(f"{name} is left out: {error}")


def summaries(inputs: Inputs, results: Results) -> list[Sheet]:
    """Return a table of all real checkpoints, and one of all structured inputs."""
    speeds = "Real checkpoints: size as a fraction of the input (encode / decode in MB/s)"
    ratios = "Structured inputs: input size over encoded size"
    return [
        summary_sheet(speeds, CHECKPOINT_NAMES, inputs, results, speeds_cell),
        summary_sheet(ratios, STRUCTURED_NAMES, inputs, results, ratio_cell),
    ]


def main(
    inputs: Annotated[
        list[str] | None, typer.Option("--input", help="Run this input only (may be repeated).")
    ] = None,
    codecs: Annotated[
        list[str] | None, typer.Option("--codec", help="Run this codec only (may be repeated).")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds of each codec.")] = 9,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each codec.")] = 2,
    json_path: JsonPath = None,
    markdown: Markdown = False,
) -> None:
    """Measure tensorcomp and its peers on real checkpoints, interleaved round by round."""
    names = chosen(codecs, [peer.name for peer in PEERS], "codec")
    running = available(peer for peer in PEERS if peer.name in names)
    plan = {peer.name: min(rounds, SLOW_ROUNDS) if peer.slow else rounds for peer in running}
    loaded: dict[str, Input] = {}
    results: dict[str, dict[str, Measurement]] = {}
    for data in load_available(chosen(inputs, INPUT_NAMES, "input")):
        loaded[data.name] = data
        results[data.name] = measure(running, data.name, plan, threads)
        for name, result in results[data.name].items():
            if result.error is not None:
                note(f"{name} fails on {data.name}: {result.error}")
    sheets = summaries(loaded, results)
    if not markdown:
        sheets = [result_sheet(data, results[name]) for name, data in loaded.items()]
    measured = [result for by_codec in results.values() for result in by_codec.values()]
    found = Found(sheets, limits(loaded, results), {"codecs": measured})
    slow = ", ".join(peer.name for peer in running if peer.slow)
    fewer = f" ({min(rounds, SLOW_ROUNDS)} of {slow})" if slow else ""
    about = {
        "threads": f"{threads} for each codec",
        "processes": "one for each codec, so that none gains from another's allocator settings",
        "rounds": f"median of {rounds}{fewer}, interleaved",
        "notes": "; ".join(f"{peer.name}: {peer.note}" for peer in running if peer.note),
    }
    packages = dict.fromkeys(peer.package for peer in running)
    report(found, packages, about, markdown=markdown, json_path=json_path)


if __name__ == "__main__":
    typer.run(main)
