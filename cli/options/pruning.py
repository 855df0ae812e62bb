"""Options that say which weights are set to zero before a checkpoint is compressed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ..command import option
from .common import path, together
from .quantity import size

if TYPE_CHECKING:
    from tensorcomp.selection.request import Pruning

# Options that mean nothing without --prune, and the field of `Pruning` that each sets.
_FIELDS = {
    "--sparsity": "sparsity",
    "--stats": "stats",
    "--scope": "scope",
    "--granularity": "granularity",
    "--prune-where": "where",
    "--density-floor": "floor",
    "--prune-max-rel-l2": "max_rel_l2",
    "--prune-target-size": "target_size",
}
_TARGETS = ("--sparsity", "--prune-max-rel-l2", "--prune-target-size")
_pruning = partial(option, group="Pruning")
_number = partial(_pruning, type=float, metavar="X")

prune_options = together(
    _pruning(
        "--prune",
        metavar="SCORE",
        help="Set the weights of lowest score to zero first: magnitude, lamp, random(SEED), or "
        "snip, grasp, taylor, gradient, synflow, wanda, obd, which need --stats.",
    ),
    _number("--sparsity", help="The exact part of the pruned tensors' weights, from 0 to 1."),
    _pruning(
        "--stats",
        type=path,
        metavar="FILE",
        help="Statistics that tensorcomp calibrate measured; obd also takes Adam's state from a "
        "training checkpoint.",
    ),
    _pruning(
        "--scope",
        type=click.Choice(["global", "tensor", "row"]),
        help="Among which weights: the score's own choice by default; "
        "tensor for what is more than single weights.",
    ),
    _pruning(
        "--granularity",
        metavar="TEXT",
        help="What is pruned together: element (default), row, filter, channel, 'block(4, 4)', "
        "'nm(2, 4)'.",
    ),
    _pruning(
        "--prune-where",
        multiple=True,
        metavar="SELECTOR",
        help="Which tensors, by role, name or pattern of names; may be repeated. Matrices and "
        "kernels of layers by default.",
    ),
    _number("--density-floor", help="The least part of each tensor that stays; 0.001 by default."),
    _number(
        "--prune-max-rel-l2",
        help="Instead of --sparsity: the largest ‖error‖ / ‖tensor‖ of each tensor.",
    ),
    _pruning(
        "--prune-target-size",
        type=size,
        metavar="SIZE",
        help="Instead of --sparsity: prune until the file takes at most so many bytes.",
    ),
)


def pruning_of(options: dict[str, Any]) -> Pruning | None:
    """Take what says how to prune out of a verb's options; None if they ask for no pruning.

    Raises
    ------
    click.UsageError
        If options are given that mean nothing without ``--prune``, or not one target.
    PruningError
        If they do not go together.
    """
    score = options.pop("prune")
    values = {option: options.pop(option[2:].replace("-", "_")) for option in _FIELDS}
    given = {option: value for option, value in values.items() if value not in (None, ())}
    if score is None:
        if given:
            raise click.UsageError(f"{next(iter(given))} says how to prune: give --prune SCORE")
        return None
    from tensorcomp.selection.granularity import NM, parse_granularity
    from tensorcomp.selection.request import Pruning

    targets = [option for option in _TARGETS if option in given]
    if len(targets) > 1:
        raise click.UsageError(f"pruning has one target; got {' and '.join(targets)}")
    granularity = parse_granularity(values["--granularity"] or "element")
    if not targets and not isinstance(granularity, NM):
        raise click.UsageError(
            f"how much is to be pruned is not said: give {', '.join(_TARGETS[:-1])} or "
            f"{_TARGETS[-1]}"
        )
    return Pruning(score, **{_FIELDS[option]: value for option, value in given.items()})
