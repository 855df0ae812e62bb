"""``tensorcomp calibrate``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .command import Result, command
from .objects import importable, load_object, made, naming, object_text
from .options import as_json, force, option, output, path

if TYPE_CHECKING:
    from tensorcomp.planning.statistics import Statistics

_object = partial(option, type=object_text)


@command()
@_object("--model MODULE:NAME", "A function that returns the model, or the model.")
@_object("--data MODULE:NAME", "A function that returns an iterable of minibatches, or that.")
@option(
    "--hf FOLDER",
    "Instead of --model: a folder with a model of transformers and its tokenizer.",
    type=path,
)
@option("--text FILE", "Instead of --data: the text that the model of --hf reads.", type=path)
@output("The statistics file.", required=True)
@option("--checkpoint FILE", "Weights to load into the model first.")
@_object(
    "--loss MODULE:NAME",
    "A function of model and minibatch that returns a scalar; cross-entropy by default.",
)
@option("--batches N", "Take the first N minibatches; all by default.")
@option(
    "--statistics NAMES",
    "Of snip, taylor, gradient, fisher, grasp, input_norm, synflow; or of second_moment, "
    "row_weight. By default the latter two with --hf, else the first six.",
)
@option(
    "--where SELECTOR",
    "Parameters to measure, by role, name or pattern of names, or all but '!SELECTOR'; may be "
    "repeated. By default the weights of linear and convolutional layers and attention; of "
    "second_moment and row_weight all matrices.",
    multiple=True,
)
@option("--temperature T", "What grasp divides the logits by.", default=200.0)
@option(
    "--train-mode/--eval-mode",
    "Let dropout and batch normalisation act as in training, or as in use. By default "
    "gradients are those of the mode in which --model is given, and input_norm, second_moment and "
    "row_weight are those in use.",
    default=None,
)
@option("--samples N", "With --hf: windows or lines, spread over the text; 128 by default.")
@option("--length N", "With --hf: tokens of each at most; 512 by default.")
@option("--batch N", "With --hf: windows or lines of a minibatch; 8 by default.")
@option(
    "--dtype",
    "Of second_moment in the file.",
    type=click.Choice(["float32", "bfloat16"]),
    default="float32",
)
@option(
    "--memory SIZE",
    "Sums for second_moment at a time; the data are read once for each part that fits.",
    default="4GiB",
)
@option(
    "--seed N", "From which labels for row_weight are drawn.", type=click.IntRange(min=0), default=0
)
@force
@as_json
def calibrate(
    *, out: Path, statistics: str | None, where: tuple[str, ...], force: bool, **options: Any
) -> Result:
    """Run a model on data and store the statistics of its weights.

    With second_moment and row_weight, which say how much an error in each weight costs, tensorcomp
    compress --stats quantizes a stored checkpoint for the least loss of the model, prunes it by
    obs, and repairs what was pruned. With the others it prunes: snip, taylor, gradient, obd
    (fisher), grasp, wanda (input_norm), synflow.

    Modules are found in the current folder too, and a file may be named as path/to/file.py:NAME. A
    minibatch is (inputs, targets), or a mapping that is given to a model which returns its own
    loss, or anything with --loss. A model is in training mode when it is made, and infers after its
    method eval.

    \b
    Examples:
      tensorcomp calibrate --hf folder --text text.txt -o stats.safetensors
      tensorcomp compress folder --bits-per-weight 3 --stats stats.safetensors
      tensorcomp calibrate --model net:make --data net:loader -o stats.safetensors
      tensorcomp compress model.safetensors --prune snip --sparsity 0.9 \\
          --stats stats.safetensors
    """  # noqa: D301 - \b keeps the example's lines as they are
    from tensorcomp.io.files import refuse_existing
    from tensorcomp.planning.statistics import CALIBRATED, CURVATURE, STATISTICS

    from .progress import progress

    usual = ",".join(CURVATURE if _require_one_way(options) == "hf" else CALIBRATED)
    names = [name.strip() for name in (usual if statistics is None else statistics).split(",")]
    for name in names:
        if name not in STATISTICS:
            message = f"expected some of {', '.join(STATISTICS)}; got {name!r}"
            raise click.BadParameter(message, param_hint="'--statistics'")
    refuse_existing(out, force=force)
    job = repr(sorted(options.items()))
    options |= {"statistics": names, "where": where or None}
    if curved := bool({*CURVATURE} & {*names}):
        options |= {"out": out, "force": force, "job": job}
    places = options["model"], options["data"], options["loss"]
    with importable(*places), progress("calibrating", "minibatches") as watch:
        found, sizes = _measured(progress=watch.count, **options)
    if not curved:
        found.save(out, force=force)
    return _result(found, sizes, out, watch.seconds)


def _require_one_way(options: dict[str, Any]) -> str:
    """Require --model and --data, or --hf and --text; return which of both ways it is."""
    ways = {"model": ("data", "checkpoint", "loss"), "hf": ("text", "samples", "length", "batch")}
    given = [way for way in ways if options[way] is not None]
    if len(given) != 1:
        got = " and ".join(f"--{way}" for way in given) or "neither"
        raise click.UsageError(f"expected --model with --data, or --hf with --text; got {got}")
    (way,), (other,) = given, ways.keys() - given
    if options[ways[way][0]] is None:
        raise click.UsageError(f"--{way} needs data: give --{ways[way][0]}")
    for name in ways[other]:
        if options[name] is not None:
            raise click.UsageError(f"--{name} belongs to --{other}; got --{way}")
    return way


def _measured(
    model: str | None, data: str | None, hf: Path | None, text: Path | None, **options: Any
) -> tuple[Statistics, dict[str, int]]:
    """Return the statistics, and the numbers of weights of what was measured."""
    from tensorcomp.errors import PruningError, needing

    with needing("torch", PruningError, "calibrate needs torch"):
        import torch  # noqa: F401
    from tensorcomp.calibration.calibrate import calibrate as measure
    from tensorcomp.calibration.curvature import matrices
    from tensorcomp.calibration.hugging_face import PretrainedFolder
    from tensorcomp.calibration.targets import prunable_parameters

    chosen = {name: options.pop(name) for name in ("samples", "length", "batch")}
    checkpoint, loss = options.pop("checkpoint"), options.pop("loss")
    if hf is None or text is None:
        network, batches, options["loss"] = _of_modules(str(model), str(data), checkpoint, loss)
    else:
        folder = PretrainedFolder(hf)
        given = {name: value for name, value in chosen.items() if value is not None}
        batches = folder.minibatches(text, **given)  # whose faults are found in less time
        network, changed = folder.model(), text.stat()
        options["job"] = f"{options.get('job')} {changed.st_size} {changed.st_mtime_ns}"
    weights = (matrices if "out" in options else prunable_parameters)(network, options["where"])
    sizes = {name: parameter.numel() for name, parameter in weights.items()}
    with naming(str(model or hf), " on the data"):
        found = measure(network, batches, **options)
    return found, sizes


def _of_modules(
    model: str, data: str, checkpoint: Path | None, loss: str | None
) -> tuple[Any, Any, Any]:
    """Return the model, minibatches and loss that modules hold."""
    import torch

    from tensorcomp.calibration.load_weights import load_weights
    from tensorcomp.errors import PruningError

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
    return network, iter(minibatches) if isinstance(loader, Iterator) else minibatches, criterion


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
    if "second_moment" in measured:
        measured["second_moment"] += [name for name in found.shared if name in sizes]
    lines = [
        f"{printable(str(out))}: {', '.join(measured)}",
        f"{counted(len(sizes), 'tensor')} of {counted(sum(sizes.values()), 'weight')}, "
        f"{counted(found.batches, 'minibatch')} of {counted(found.samples, 'sample')}, "
        f"{seconds_text(seconds)}",
    ]
    if found.unreached:
        unreached = ", ".join(map(printable, found.unreached))
        whose = "no sample reaches, so that pruning leaves as they are"
        whose = "no sample or gradient reaches" if found.positions else whose
        lines.append(f"{whose}: {unreached}")
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
