"""Scoring and selecting a hundred million weights, beside one `torch.topk` of all their scores.

`torch.topk` is given what it needs for nothing: one tensor of all magnitudes. tensorcomp is given
the weights, and makes every mask; the seconds of choosing alone are shown as well. All work in one
process, in turns; memory is measured in a process of its own for each, from outside.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.common.machine import anonymous_bytes
from benchmarks.common.reporting import Columns, Limit, Sheet
from tensorcomp.pruning import StreamingScores, parse_score, select

WEIGHTS = 100_000_000
SPARSITY = 0.9
THREADS = 2
TENSORS = {"one tensor": 1, "100 tensors": 100}
TOPK = "torch.topk"
COLUMNS = 1000
TIMES_TOPK = 3.0
EXTRA_SHARE = 0.4  # of the weights' own bytes: no copy of them, but a mask of a byte a weight


Arrays = Mapping[str, "np.ndarray[Any, Any]"]


@dataclass(frozen=True)
class SpeedRow:
    """Cost of selecting: medians of seconds, and the largest memory beside the inputs.

    `choosing` is the part of `seconds` before masks are made, which `torch.topk` does not make.
    """

    name: str
    weights: int
    seconds: float
    choosing: float
    extra_bytes: int


@dataclass(frozen=True)
class Input:
    """The weights, in tensors and as one."""

    tensors: Mapping[str, Arrays]
    flat: torch.Tensor


def inputs(count: int) -> Input:
    """Draw Gaussian weights; tensors are parts of one, so that they take their memory once."""
    torch.set_num_threads(THREADS)
    selected({"first": np.ones((100, 1), np.float32)})  # loads what is needed, once for all figures
    flat = torch.empty(count).normal_(generator=torch.Generator().manual_seed(0))
    array = flat.numpy()
    tensors = {
        name: {
            f"layer{index:03}": part.reshape(-1, COLUMNS)
            for index, part in enumerate(np.split(array, pieces))
        }
        for name, pieces in TENSORS.items()
    }
    return Input(tensors, flat)


def selected(weights: Arrays) -> tuple[float, float]:
    """Select among weights by magnitude; return the seconds of choosing, and those with masks."""
    start = time.perf_counter()
    selection = select(
        StreamingScores(weights, parse_score("magnitude")), SPARSITY, threads=THREADS
    )
    chosen = time.perf_counter()
    for name in selection.names:  # one at a time, as masks are used when a model is pruned
        selection.mask(name)
    done = time.perf_counter()
    return chosen - start, done - start


def topped(scores: torch.Tensor) -> tuple[float, float]:
    """Find the highest scores by torch; return its seconds twice, in the form of `selected`."""
    start = time.perf_counter()
    found = torch.topk(scores, scores.numel() - round(SPARSITY * scores.numel()), sorted=False)
    seconds = time.perf_counter() - start
    del found  # alive when the clock stops
    return seconds, seconds


def times(count: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Run everything in turns; return what `selected` and `topped` did, by name and round."""
    given = inputs(count)
    magnitudes = given.flat.abs()
    calls: dict[str, Callable[[], tuple[float, float]]] = {TOPK: partial(topped, magnitudes)}
    calls |= {name: partial(selected, tensors) for name, tensors in given.tensors.items()}
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    names = list(calls)
    for index in range(rounds):
        shift = index % len(names)
        for name in names[shift:] + names[:shift]:
            taken[name].append(calls[name]())
    return taken


def speed_rows(count: int, rounds: int) -> Iterator[SpeedRow]:
    """Measure times, then memory."""
    for name, taken in times(count, rounds).items():
        choosing, seconds = (median(column) for column in zip(*taken, strict=True))
        yield SpeedRow(name, count, seconds, choosing, extra_memory(name, count))


def extra_memory(name: str, count: int) -> int:
    """Return the most anonymous bytes that a process took beside what it began with."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work_once, args=(theirs, name, count))
    process.start()
    assert process.pid is not None
    ours.recv()
    before = peak = anonymous_bytes(process.pid)
    ours.send(None)
    while not ours.poll(0.002):
        peak = max(peak, anonymous_bytes(process.pid))
    process.join()
    return peak - before


def _work_once(connection: Connection, name: str, count: int) -> None:
    given = inputs(count)
    scores = given.flat.abs() if name == TOPK else given.flat
    connection.send(None)
    connection.recv()
    if name == TOPK:
        topped(scores)
    else:
        selected(given.tensors[name])
    connection.send(None)


def speed_sheet(rows: list[SpeedRow]) -> Sheet:
    """Tabulate seconds and memory."""
    reference = next((row for row in rows if row.name == TOPK), None)
    count = rows[0].weights if rows else 0
    title = (
        f"Pruning {SPARSITY:.0%} of {count / 1e6:.0f} M fp32 weights by magnitude, globally "
        f"({4 * count / 1e6:.0f} MB), {THREADS} threads"
    )
    columns: Columns = {
        "what": lambda row: row.name if row.name == TOPK else f"tensorcomp, {row.name}",
        "choosing, s": lambda row: "-" if row.name == TOPK else f"{row.choosing:.2f}",
        "with masks, s": lambda row: f"{row.seconds:.2f}",
        "times topk": lambda row: (
            "-" if reference is None else f"{row.seconds / reference.seconds:.2f}"
        ),
        "memory beside, MB": lambda row: f"{row.extra_bytes / 1e6:.0f}",
    }
    return Sheet.of(title, rows, columns)


def speed_limits(rows: list[SpeedRow]) -> list[Limit]:
    """Judge seconds against `torch.topk`, and memory against the weights' own."""
    found = {row.name: row for row in rows}
    if TOPK not in found:
        return []
    limits = []
    for name in TENSORS:
        row = found[name]
        ratio = row.seconds / found[TOPK].seconds
        limits.append(Limit(f"selecting, {name}: times torch.topk", ratio, TIMES_TOPK))
        share = row.extra_bytes / (4 * row.weights)
        what = f"selecting, {name}: memory beside, over the weights' own"
        limits.append(Limit(what, share, EXTRA_SHARE))
    return limits
