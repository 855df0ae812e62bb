"""``tensorcomp calibrate``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .command import Result, command
from .objects import importable, load_object, made, naming, object_text
from .options import as_json, force, option, output

if TYPE_CHECKING:
    from tensorcomp.planning.statistics import Statistics

_object = partial(option, type=object_text)


@command()
@_object("--model MODULE:NAME", "A function that returns the model, or the model.", required=True)
@_object(
    "--data MODULE:NAME",
    "A function that returns an iterable of minibatches, or the iterable.",
    required=True,
)
@output("The statistics file.", required=True)
@option("--checkpoint FILE", "Weights to load into the model first.")
@_object(
    "--loss MODULE:NAME",
    "A function of model and minibatch that returns a scalar; cross-entropy by default.",
)
@option("--batches N", "Take the first N minibatches; all by default.")
@option(
    "--statistics NAMES",
    "Of snip, taylor, gradient, fisher, grasp, input_norm, synflow.",
    default="snip,taylor,gradient,fisher,grasp,input_norm",
)
@option(
    "--where SELECTOR",
    "Parameters to measure, by role, name or pattern of names, or all but '!SELECTOR'; may be "
    "repeated. By default the weights of linear and convolutional layers and attention.",
    multiple=True,
)
@option("--temperature T", "What grasp divides the logits by.", default=200.0)
@option(
    "--train-mode/--eval-mode",
    "Let dropout and batch normalisation act as in training, or as in use. By default "
    "gradients are those of the mode in which --model is given, and input_norm is that in use.",
    default=None,
)
@force
@as_json
def calibrate(
    *,
    model: str,
    data: str,
    out: Path,
    checkpoint: Path | None,
    loss: str | None,
    statistics: str,
    where: tuple[str, ...],
    force: bool,
    **options: Any,
) -> Result:
    """Run a model on data and store the statistics that score its weights.

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
    from tensorcomp.io.files import refuse_existing
    from tensorcomp.planning.statistics import STATISTICS

    from .progress import progress

    names = [name.strip() for name in statistics.split(",")]
    for name in names:
        if name not in STATISTICS:
            message = f"expected some of {', '.join(STATISTICS)}; got {name!r}"
            raise click.BadParameter(message, param_hint="'--statistics'")
    refuse_existing(out, force=force)
    options |= {"statistics": names, "where": where or None}
    with importable(model, data, loss), progress("calibrating", "minibatches") as watch:
        found, sizes = _measured(model, data, loss, checkpoint, progress=watch.count, **options)
    found.save(out, force=force)
    return _result(found, sizes, out, watch.seconds)


def _measured(
    model: str, data: str, loss: str | None, checkpoint: Path | None, **options: Any
) -> tuple[Statistics, dict[str, int]]:
    """Return the statistics, and the numbers of weights of what was measured."""
    from tensorcomp.errors import PruningError, needing

    with needing("torch", PruningError, "calibrate needs torch"):
        import torch
    from tensorcomp.calibration.calibrate import calibrate as measure
    from tensorcomp.calibration.load_weights import load_weights
    from tensorcomp.calibration.targets import prunable_parameters

    network = made(model, torch.nn.Module, "a torch.nn.Module")
    if checkpoint is not None:
        load_weights(network, checkpoint)
    loader = made(data, Iterable, "minibatches")
    minibatches = _Named(loader, data)  # which can start again if the loader can
    criterion = None if loss is None else load_object(loss)
    if loss is not None:
        if not callable(criterion):
            raise PruningError(f"{loss}: is {type(criterion).__name__}, not a function")
        criterion = naming(loss)(criterion)
    weights = prunable_parameters(network, options["where"])
    sizes = {name: parameter.numel() for name, parameter in weights.items()}
    with naming(model, " on the data"):
        batches = iter(minibatches) if isinstance(loader, Iterator) else minibatches
        found = measure(network, batches, loss=criterion, **options)
    return found, sizes


class _Named:
    """Minibatches of a loader, whose errors say its name."""

    def __init__(self, data: Any, text: str) -> None:
        self._data = data
        self._text = text

    def __iter__(self) -> Iterator[Any]:
        with naming(self._text):  # from the first minibatch on, since starting draws an order
            yield from self._data

    def __len__(self) -> int:
        return len(self._data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._data, name)  # a loader's samplers, which draw the order


def _result(found: Statistics, sizes: dict[str, int], out: Path, seconds: float) -> Result:
    from tensorcomp._formatting import counted, printable, seconds_text

    measured = {statistic: list(arrays) for statistic, arrays in found.arrays.items()}
    lines = [
        f"{printable(str(out))}: {', '.join(measured)}",
        f"{counted(len(sizes), 'tensor')} of {counted(sum(sizes.values()), 'weight')}, "
        f"{counted(found.batches, 'minibatch')} of {counted(found.samples, 'sample')}, "
        f"{seconds_text(seconds)}",
    ]
    if found.unreached:
        unreached = ", ".join(map(printable, found.unreached))
        lines.append(f"no sample reaches, so that pruning leaves as they are: {unreached}")
    for statistic, names in measured.items():
        left = [printable(n) for n in sizes if n not in names and n not in found.unreached]
        if left:
            lines.append(f"without {statistic}: {', '.join(left)}")

    def to_json() -> dict[str, Any]:
        return {
            "output": str(out),
            "batches": found.batches,
            "samples": found.samples,
            "seconds": round(seconds, 6),
            "weights": sum(sizes.values()),
            "statistics": measured,
            "unreached": list(found.unreached),
        }

    return Result(to_json, summary=lines)
