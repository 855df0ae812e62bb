"""Save and load a model and AdamW's state by torch.distributed.checkpoint, plainly and compressed.

The ways take turns in one process; each save goes to a new folder, each load into a state of other
values. ``blocked`` is how long `async_save` keeps its caller waiting, with one stager for all.
Every state that was loaded equals the one that was saved, bit for bit.
"""

import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import torch
import torch.distributed.checkpoint as dcp
import typer
from torch import distributed, nn
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import get_state_dict

from benchmarks.common.checkpoints import MEBIBYTE
from benchmarks.common.reporting import (
    Columns,
    Found,
    JsonPath,
    Limit,
    Markdown,
    Sheet,
    note,
    number,
    report,
)
from tensorcomp.dcp import Reader, Writer

MOST_BYTES, MOST_TIME, MOST_BLOCKED = 0.82, 1.6, 0.15  # of those of plain files
PLAIN, SYNCED = "torch, not synced", "torch"

Way = tuple[Callable[[Path], Any], Callable[[Path], Any]]
WAYS: dict[str, Way] = {
    PLAIN: (lambda path: dcp.FileSystemWriter(path, sync_files=False), dcp.FileSystemReader),
    SYNCED: (dcp.FileSystemWriter, dcp.FileSystemReader),
    "tensorcomp.dcp": (Writer, Reader),
    'tensorcomp.dcp, effort="fast"': (lambda path: Writer(path, effort="fast"), Reader),
}


@dataclass(frozen=True)
class Row:
    """Figures of one way: bytes, and medians of seconds."""

    way: str
    nbytes: int
    save: float
    load: float
    blocked: float


def training_state(seed: int, width: int, layers: int, steps: int = 3) -> dict[str, Any]:
    """Return the state of a model of linear layers and of AdamW after some steps."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        *(part for _ in range(layers) for part in (nn.Linear(width, width), nn.GELU()))
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(64, width)).pow(2).mean().backward()
        optimizer.step()
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optim": moments, "step": steps}


def leaves(state: Any, name: str = "") -> dict[str, Any]:
    """Return what is in nested dicts, by name."""
    if not isinstance(state, dict):
        return {name: state}
    return {k: v for key, value in state.items() for k, v in leaves(value, f"{name}.{key}").items()}


def is_equal(one: Any, other: Any) -> bool:
    """Return whether two states are equal."""
    first, second = leaves(one), leaves(other)
    return first.keys() == second.keys() and all(
        torch.equal(value, second[name])
        if isinstance(value, torch.Tensor)
        else value == second[name]
        for name, value in first.items()
    )


def timed(job: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds that a call took, and what it returned."""
    begun = time.perf_counter()
    result = job()
    return time.perf_counter() - begun, result


def measure(
    way: Way, state: dict[str, Any], other: dict[str, Any], folder: Path, stager: DefaultStager
) -> tuple[int, float, float, float]:
    """Save, load and save in the background once."""
    writer, reader = way
    shutil.rmtree(folder, ignore_errors=True)
    saving, _ = timed(lambda: dcp.save(state, storage_writer=writer(folder)))
    nbytes = sum(path.stat().st_size for path in folder.iterdir())
    loading, _ = timed(lambda: dcp.load(other, storage_reader=reader(folder)))
    if not is_equal(state, other):
        raise ValueError("what was loaded is not what was saved")
    for value in leaves(other).values():
        if isinstance(value, torch.Tensor):
            value.zero_()
    shutil.rmtree(folder)
    blocked, job = timed(
        lambda: dcp.async_save(state, storage_writer=writer(folder), async_stager=stager)
    )
    job.result()
    return nbytes, saving, loading, blocked


COLUMNS: Columns = {
    "way": lambda row: row.way,
    "MiB": lambda row: number(row.nbytes / MEBIBYTE, 1),
    "save, s": lambda row: number(row.save, 3),
    "load, s": lambda row: number(row.load, 3),
    "async_save blocked, ms": lambda row: number(1e3 * row.blocked, 0),
}


def main(
    rounds: Annotated[int, typer.Option(help="Turns of each way.")] = 7,
    width: int = 1536,
    layers: int = 4,
    *,
    markdown: Markdown = False,
    json_path: JsonPath = None,
) -> None:
    """Measure bytes and times of saves and loads."""
    warnings.simplefilter("ignore")  # torch's own
    distributed.init_process_group(
        "gloo", store=distributed.HashStore(), rank=0, world_size=1
    )  # which async_save needs
    state, other = (training_state(seed, width, layers) for seed in (0, 1))
    raw = sum(value.nbytes for value in leaves(state).values() if isinstance(value, torch.Tensor))
    found: dict[str, list[tuple[int, float, float, float]]] = {name: [] for name in WAYS}
    stager = DefaultStager(StagingOptions(False, False, False, False))
    with tempfile.TemporaryDirectory() as scratch:
        for turn in range(rounds + 1):
            note(f"turn {turn} of {rounds}")
            for name, way in WAYS.items():
                figures = measure(way, state, other, Path(scratch, "saved"), stager)
                if turn:  # the first one imports
                    found[name].append(figures)
    distributed.destroy_process_group()
    rows = [
        Row(name, taken[0][0], *(median(column) for column in list(zip(*taken, strict=True))[1:]))
        for name, taken in found.items()
    ]
    plain, synced = rows[:2]
    limits = []
    for row in rows[2:]:
        limits += [
            Limit(f"bytes of {row.way} / those of the tensors", row.nbytes / raw, MOST_BYTES),
            Limit(f"save of {row.way} / {PLAIN}", row.save / plain.save, MOST_TIME),
            Limit(f"save of {row.way} / {SYNCED}", row.save / synced.save, MOST_TIME),
            Limit(f"load of {row.way} / {PLAIN}", row.load / plain.load, MOST_TIME),
            Limit(
                f"async_save of {row.way} / save, {SYNCED}", row.blocked / synced.save, MOST_BLOCKED
            ),
        ]
    title = f"Save and load {raw / 1e6:.0f} MB of tensors by torch.distributed.checkpoint"
    report(
        Found([Sheet.of(title, rows, COLUMNS)], limits, {"rows": rows}),
        ("tensorcomp", "torch"),
        {"turns": f"{rounds} of each way; medians"},
        markdown=markdown,
        json_path=json_path,
    )


if __name__ == "__main__":
    typer.run(main)
