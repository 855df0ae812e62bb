"""``tensorcomp calibrate``."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options.common import force, json, output, path
from .options.objects import importable, load_object, made, naming, object_text

if TYPE_CHECKING:
    from tensorcomp.planning.statistics import Statistics


@click.command()
@click.option(
    "--model",
    type=object_text,
    required=True,
    metavar="MODULE:NAME",
    help="A function that returns the model, or the model.",
)
@click.option(
    "--data",
    type=object_text,
    required=True,
    metavar="MODULE:NAME",
    help="A function that returns an iterable of minibatches, or the iterable.",
)
@output(text="The statistics file.", required=True)
@click.option(
    "--checkpoint", type=path, metavar="FILE", help="Weights to load into the model first."
)
@click.option(
    "--loss",
    type=object_text,
    metavar="MODULE:NAME",
    help="A function of model and minibatch that returns a scalar; cross-entropy by default.",
)
@click.option(
    "--batches",
    type=click.IntRange(min=1),
    metavar="N",
    help="Take the first N minibatches; all by default.",
)
@click.option(
    "--statistics",
    default="snip,taylor,gradient,fisher,grasp,input_norm",
    metavar="NAMES",
    help="Of snip, taylor, gradient, fisher, grasp, input_norm, synflow.",
)
@click.option(
    "--where",
    multiple=True,
    metavar="PATTERN",
    help="Parameters to measure, by name; may be repeated. By default the weights of linear and "
    "convolutional layers and attention.",
)
@click.option(
    "--temperature",
    type=float,
    default=200.0,
    metavar="T",
    help="What grasp divides the logits by.",
)
@click.option(
    "--train-mode/--eval-mode",
    default=None,
    help="Let dropout and batch normalisation act as in training, or as in use. By default "
    "gradients are those of the mode in which --model is given, and input_norm is that in use.",
)
@force
@json
def calibrate(
    *,
    model: str,
    data: str,
    out: Path,
    checkpoint: Path | None,
    loss: str | None,
    batches: int | None,
    statistics: str,
    where: tuple[str, ...],
    temperature: float,
    train_mode: bool | None,
    force: bool,
    json: bool,
) -> None:
    """Run a model once on data and store the statistics by which its weights are scored.

    With the file, tensorcomp compress prunes a stored checkpoint without the model: snip, taylor,
    gradient, obd (fisher), grasp, wanda (input_norm), synflow. Modules are found in the current
    folder too, and a file may be named as path/to/file.py:NAME.

    A minibatch is (inputs, targets), or a mapping that is given to a model which returns its own
    loss, or anything with --loss. A model is in training mode when it is made, and infers after its
    method eval.

    \b
    Examples:
      tensorcomp calibrate --model net:make --data net:loader -o stats.safetensors
      tensorcomp compress model.safetensors --prune snip --sparsity 0.9 \\
          --stats stats.safetensors
    """  # noqa: D301 - \b keeps the example's lines as they are
    from tensorcomp.io.atomic import refuse_existing
    from tensorcomp.planning.statistics import STATISTICS

    names = [name.strip() for name in statistics.split(",")]
    for name in names:
        if name not in STATISTICS:
            raise click.BadParameter(f"{name!r} is none of the statistics {', '.join(STATISTICS)}")
    refuse_existing(out, force=force)
    begun = time.perf_counter()
    with importable(model, data, loss):
        found, sizes = _measured(
            model,
            data,
            loss,
            checkpoint,
            statistics=names,
            batches=batches,
            where=where or None,
            temperature=temperature,
            train_mode=train_mode,
        )
    found.save(out, force=force)
    _report(found, sizes, out, time.perf_counter() - begun, json=json)


def _measured(
    model: str, data: str, loss: str | None, checkpoint: Path | None, **options: Any
) -> tuple[Statistics, dict[str, int]]:
    """Return the statistics, and the numbers of weights of what was measured."""
    from tensorcomp.errors import PruningError

    try:
        import torch
    except ImportError as error:
        raise PruningError(
            "calibrate needs torch; run `pip install 'tensorcomp[torch]'`"
        ) from error
    from tensorcomp.pruning.calibration import calibrate as measure
    from tensorcomp.pruning.load_weights import load_weights
    from tensorcomp.pruning.targets import prunable_parameters

    network = made(model, torch.nn.Module)
    if not isinstance(network, torch.nn.Module):
        raise PruningError(f"{model}: gives {type(network).__name__}, not a torch.nn.Module")
    if checkpoint is not None:
        load_weights(network, checkpoint)
    minibatches = _named_batches(made(data, Iterable), data)
    criterion = None if loss is None else _named_loss(load_object(loss), loss)
    sizes = {
        name: parameter.numel()
        for name, parameter in prunable_parameters(network, options["where"]).items()
    }
    with _bar() as shown, naming(model, " on the data"):
        found = measure(network, minibatches, loss=criterion, progress=shown, **options)
    return found, sizes


def _named_batches(data: Any, text: str) -> Iterable[Any]:
    """Have errors of a loader say its name; it can be started again if the loader can."""
    from tensorcomp.errors import PruningError

    if not isinstance(data, Iterable):
        raise PruningError(f"{text}: gives {type(data).__name__}, not minibatches")

    def run() -> Iterator[Any]:
        with naming(text):
            yield from data

    # Not by iter(data), which starts a loader's workers and draws from its generator.
    return run() if isinstance(data, Iterator) else _Restarting(data, run)


class _Restarting:
    """An iterable that runs a function anew each time."""

    def __init__(self, data: Any, run: Callable[[], Iterator[Any]]) -> None:
        self._data = data
        self._run = run

    def __iter__(self) -> Iterator[Any]:
        return self._run()

    def __len__(self) -> int:
        return len(self._data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._data, name)  # a loader's samplers, which draw the order


def _named_loss(loss: Any, text: str) -> Callable[[Any, Any], Any]:
    """Have errors of a loss say its name."""
    from tensorcomp.errors import PruningError

    if not callable(loss):
        raise PruningError(f"{text}: is {type(loss).__name__}, not a function")

    def run(model: Any, batch: Any) -> Any:
        with naming(text):
            return loss(model, batch)

    return run


@contextlib.contextmanager
def _bar() -> Iterator[Callable[[int, int | None], None] | None]:
    """Show a bar of minibatches and time left, where stderr is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    columns = (TextColumn("calibrating"), BarColumn(bar_width=None), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(
        *columns,
        TextColumn("minibatches"),
        TimeLeft(),
        console=console,
        transient=True,
        expand=True,
    ) as shown:
        task = shown.add_task("", total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


def _report(
    found: Statistics, sizes: dict[str, int], out: Path, seconds: float, *, json: bool
) -> None:
    from tensorcomp._formatting import counted, printable

    from .output import show, show_json

    measured = {statistic: list(arrays) for statistic, arrays in found.arrays.items()}
    if json:
        show_json(
            {
                "output": str(out),
                "batches": found.batches,
                "samples": found.samples,
                "seconds": round(seconds, 6),
                "weights": sum(sizes.values()),
                "statistics": measured,
            }
        )
        return
    lines = [
        f"{printable(str(out))}: {', '.join(measured)}",
        f"{counted(len(sizes), 'tensor')} of {counted(sum(sizes.values()), 'weight')}, "
        f"{counted(found.batches, 'minibatch')} of {counted(found.samples, 'sample')}, "
        f"{seconds:.1f} s",
    ]
    for statistic, names in measured.items():
        left = [printable(name) for name in sizes if name not in names]
        if left:
            lines.append(f"without {statistic}: {', '.join(left)}")
    show(lines)
