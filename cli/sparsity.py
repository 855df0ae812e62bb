"""``tensorcomp sparsity``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from .options.common import force, forms, path, refuse_two_forms, source, threads
from .options.objects import importable, made, naming, object_text


@click.command()
@source
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="List every tensor, not only weights that have zeros.",
)
@click.option(
    "--model",
    type=object_text,
    metavar="MODULE:NAME",
    help="The model, or a function that returns it: tells effective sparsity.",
)
@click.option(
    "--input",
    "example",
    type=object_text,
    metavar="MODULE:NAME",
    help="An input of the model, minibatches, or a function that returns either.",
)
@click.option(
    "--keep-indices",
    type=path,
    metavar="OUT",
    help="Save which rows and columns of each tensor are left, as JSON.",
)
@force
@threads
@forms
def sparsity(
    source: Path,
    *,
    every: bool,
    model: str | None,
    example: str | None,
    keep_indices: Path | None,
    force: bool,
    threads: int | None,
    json: bool,
    csv: bool,
    markdown: bool,
) -> None:
    """Show the zeros of a checkpoint, and what they save.

    INPUT is a file or a folder, compressed or not. Of each weight that has zeros the table has
    their number, the density, rows (filters) and columns (channels) that are all zero, and the
    bytes under each way to store it losslessly, the fewest marked by *: dense; with a bitmap; with
    the gaps between values; packed, where no 4 neighbours have more than 1 or 2 values, or no 8
    more than 4; live, without dead rows and columns; and entropy, what compress does.

    Weights do nothing if their input is always zero, or nothing reads their output. With --model
    and --input, effective sparsity counts these, too. The saved indices tell a tool that changes
    the model's shape which rows and columns to keep.

    \b
    Examples:
      tensorcomp sparsity pruned.safetensors
      tensorcomp sparsity pruned.tc.safetensors --model net:make --input net:loader \\
          --keep-indices keep.json
    """  # noqa: D301 - \b keeps the example's lines as they are
    refuse_two_forms(json=json, csv=csv, markdown=markdown)
    if (model is None) != (example is None):
        raise click.BadParameter("--model and --input go together")
    from tensorcomp._formatting import printable
    from tensorcomp.io.atomic import refuse_existing
    from tensorcomp.pruning.keep_indices import save_keep_indices
    from tensorcomp.sparsity import tables
    from tensorcomp.sparsity.measure import sparsity_report

    from .output import show, show_json, stdout_width
    from .progress import progress

    begun = time.perf_counter()
    if keep_indices is not None:
        refuse_existing(keep_indices, force=force)
    with importable(model, example):
        network, given = (None, None) if model is None else _loaded(model, example)
        followed = contextlib.nullcontext() if model is None else naming(model)
        with progress("counting") as shown, followed:
            report = sparsity_report(
                source,
                model=network,
                example=given,
                every=every,
                threads=threads,
                progress=shown,
            )
    if keep_indices is not None:
        save_keep_indices(report.kept, keep_indices, force=force)
    if json:
        show_json(tables.sparsity_json(report, time.perf_counter() - begun))
    elif csv:
        show(tables.sparsity_csv(report))
    elif markdown:
        show(tables.sparsity_markdown(report))
    else:
        table = tables.sparsity_table(report, stdout_width())
        first, *others = tables.sparsity_totals(report)
        show([*table, *([""] if table else []), f"{printable(str(source))}: {first}", *others])


def _loaded(model: str, example: str | None) -> tuple[Any, Any]:
    """Return a model and an input of it."""
    from tensorcomp.errors import PruningError

    try:
        import torch
    except ImportError as error:
        raise PruningError(
            "effective sparsity needs torch; run `pip install 'tensorcomp[torch]'`"
        ) from error
    assert example is not None
    network = made(model, torch.nn.Module)
    if not isinstance(network, torch.nn.Module):
        raise PruningError(f"{model}: gives {type(network).__name__}, not a torch.nn.Module")
    given = made(example, Iterable)
    with naming(example):
        return network, _first_input(given, example)


def _first_input(given: Any, text: str) -> Any:
    """Return an input as it is, or that of the first of some minibatches."""
    import numpy as np
    import torch

    from tensorcomp.errors import PruningError

    if isinstance(given, np.ndarray):
        return torch.as_tensor(given)
    if isinstance(given, (torch.Tensor, tuple, Mapping)):
        return given
    if not isinstance(given, Iterable):
        raise PruningError(f"{text}: gives {type(given).__name__}, not an input or minibatches")
    first = next(iter(given), None)
    if first is None:
        raise PruningError(f"{text}: holds no minibatch")
    return first[0] if isinstance(first, (tuple, list)) else first
