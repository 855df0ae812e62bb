"""How long `Series.add` keeps training waiting, beside a copy of the state in memory.

    python -m benchmarks.series.blocking [--width 1536] [--layers 4]

A state of weights and AdamW's moments is added while nothing is being written, the copy goes to
memory that is kept from round to round, as a series keeps its own; they take turns with moonclip's
asynchronous save. Waiting for the write before is not counted.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import torch
import typer
from torch import nn

from benchmarks.common.reporting import (
    Columns,
    Found,
    JsonPath,
    Limit,
    Markdown,
    Sheet,
    end,
    number,
)

MOST = 1.5  # of a copy
COPY, SERIES, MOONCLIP = "a copy in memory", "tensorcomp.Series.add", "moonclip, async_save"


@dataclass(frozen=True)
class BlockingRow:
    """Median milliseconds that a way keeps its caller waiting."""

    way: str
    wait: float


def training(width: int, layers: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a model of linear layers and AdamW after a step."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    torch.autograd.backward(model(torch.randn(8, width)).square().mean())
    optimizer.step()
    return model, optimizer


def tensors_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return all tensors of a state."""
    moments = (value for state in optimizer.state.values() for value in state.values())
    return [*(p.detach() for p in model.parameters()), *moments]


def waits(
    jobs: dict[str, tuple[Callable[[int], Any], Callable[[], Any]]], rounds: int
) -> dict[str, list[float]]:
    """Time jobs turn by turn; what each leaves to do is done before the next one begins."""
    taken: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(1, rounds + 2):
        for name, (job, finish) in jobs.items():
            begun = time.perf_counter()
            job(turn)
            seconds = time.perf_counter() - begun
            taken[name] += [seconds] if turn > 1 else []
            finish()
    return taken


def main(
    width: int = 1536,
    layers: int = 4,
    rounds: Annotated[int, typer.Option(min=1, help="Turns; medians count.")] = 5,
    *,
    markdown: Markdown = False,
    json_path: JsonPath = None,
) -> None:
    """Measure what a caller waits."""
    from tensorcomp import Series

    torch.set_num_threads(1)
    model, optimizer = training(width, layers)
    tensors = tensors_of(model, optimizer)
    kept = [torch.empty_like(tensor) for tensor in tensors]
    nbytes = sum(tensor.nbytes for tensor in tensors)

    def copy(_: int) -> None:
        for room, tensor in zip(kept, tensors, strict=True):
            room.copy_(tensor)

    with tempfile.TemporaryDirectory() as scratch, Series(Path(scratch, "run")) as series:
        store = import_module("moonclip").CheckpointManager(str(Path(scratch, "moonclip")))
        jobs: dict[str, tuple[Callable[[int], Any], Callable[[], Any]]] = {
            COPY: (copy, lambda: None),
            SERIES: (lambda turn: series.add(turn, model, optimizer), series.flush),
            MOONCLIP: (
                lambda turn: store.save(step=turn, model=model, optimizer=optimizer),
                store.flush,
            ),
        }
        taken = waits(jobs, rounds)
    rows = [BlockingRow(name, 1e3 * median(seconds)) for name, seconds in taken.items()]
    by_name = {row.way: row.wait for row in rows}
    columns: Columns = {
        "way": lambda row: row.way,
        "caller waits, ms": lambda row: number(row.wait, 1),
        "of a copy": lambda row: number(row.wait / by_name[COPY], 2),
    }
    sheet = Sheet.of(f"A state of {nbytes / 1e6:.0f} MB is added", rows, columns)
    limits = [Limit("Series.add / a copy", by_name[SERIES] / by_name[COPY], MOST)]
    about = {"rounds": f"median of {rounds}, interleaved", "threads": "one copies"}
    found = Found([sheet], limits, {"waits": rows})
    end(found, ("tensorcomp", "torch", "moonclip"), about, markdown=markdown, json_path=json_path)


if __name__ == "__main__":
    typer.run(main)
