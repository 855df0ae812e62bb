"""Options that say which weights are set to zero before a checkpoint is compressed."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from .lossy_options import size
from .options import path

_TARGETS = ("--sparsity", "--prune-max-rel-l2", "--prune-target-size")


class Among(StrEnum):
    """Among which weights the lowest scores are looked for."""

    GLOBAL = "global"
    TENSOR = "tensor"
    ROW = "row"


Prune = Annotated[
    Optional[str],  # noqa: UP045 - typer reads it at run time
    typer.Option(
        metavar="SCORE",
        help="Set the weights of lowest score to zero first: magnitude, lamp, random(SEED), or "
        "snip, grasp, taylor, gradient, synflow, wanda, obd, which need --stats.",
    ),
]
Sparsity = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(metavar="X", help="The exact part of the pruned tensors' weights, from 0 to 1."),
]
Stats = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        parser=path,
        metavar="FILE",
        help="Statistics that tensorcomp calibrate measured; obd also takes Adam's state from a "
        "training checkpoint.",
    ),
]
Scope = Annotated[
    Optional[Among],  # noqa: UP045
    typer.Option(
        help="Among which weights: the score's own choice by default; "
        "tensor for what is more than single weights."
    ),
]
Granularity = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="TEXT",
        help="What is pruned together: element (default), row, filter, channel, 'block(4, 4)', "
        "'nm(2, 4)'.",
    ),
]
PruneWhere = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        metavar="SELECTOR",
        help="Which tensors, by role, name or pattern of names; may be repeated. Matrices and "
        "kernels of layers by default.",
    ),
]
DensityFloor = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(metavar="X", help="The part of each tensor that stays at least: 0.001."),
]
PruneMaxRelL2 = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        metavar="X", help="Instead of --sparsity: the largest ‖error‖ / ‖tensor‖ of each tensor."
    ),
]
PruneTargetSize = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        parser=size,
        metavar="SIZE",
        help="Instead of --sparsity: prune until the file takes at most so many bytes.",
    ),
]


def pruning_of(
    score: str | None,
    *,
    sparsity: float | None,
    stats: Path | None,
    scope: Among | None,
    granularity: str | None,
    where: list[str] | None,
    floor: float | None,
    max_rel_l2: float | None,
    target_size: int | None,
) -> Any:
    """Return the pruning that the options ask for; None if they ask for none.

    Raises
    ------
    typer.BadParameter
        If options are given that mean nothing without ``--prune``, or not one target.
    PruningError
        If they do not go together.
    """
    from tensorcomp.pruning import Pruning

    options: dict[str, tuple[str, Any]] = {
        "--sparsity": ("sparsity", sparsity),
        "--stats": ("stats", stats),
        "--scope": ("scope", None if scope is None else scope.value),
        "--granularity": ("granularity", granularity),
        "--prune-where": ("where", tuple(where) if where else None),
        "--density-floor": ("floor", floor),
        "--prune-max-rel-l2": ("max_rel_l2", max_rel_l2),
        "--prune-target-size": ("target_size", target_size),
    }
    given = {option: pair for option, pair in options.items() if pair[1] is not None}
    if score is None:
        if given:
            raise typer.BadParameter(f"{next(iter(given))} says how to prune: give --prune SCORE")
        return None
    _require_one_target([option for option in _TARGETS if option in given], granularity)
    return Pruning(score, **dict(given.values()))


def _require_one_target(given: list[str], granularity: str | None) -> None:
    """Say it by the options' names; a budget's are much like them."""
    from tensorcomp.pruning import NM, parse_granularity

    if len(given) > 1:
        raise typer.BadParameter(f"pruning has one target; got {' and '.join(given)}")
    if not given and not isinstance(parse_granularity(granularity or "element"), NM):
        raise typer.BadParameter(
            f"how much is to be pruned is not said: give {', '.join(_TARGETS[:-1])} or "
            f"{_TARGETS[-1]}"
        )
