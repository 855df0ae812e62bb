"""Options that say what may be lost: profile, budget, trees, importance."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from .options import Effort, path

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmg]i?)?b?\s*", re.IGNORECASE)


def size(text: str) -> int:
    """Return the bytes that a text such as ``700MB`` or ``1.5GiB`` says."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f"{text!r} is no size; give one like 700MB or 1.5GiB")
    return int(float(match[1]) * _UNITS[(match[2] or "").lower()])


Profile = Annotated[
    Optional[str],  # noqa: UP045 - typer reads it at run time
    typer.Option(
        metavar="NAME",
        help="lossless (default), transformer, cnn, mlp, memory, speed, or a .toml file.",
    ),
]
MaxRelL2 = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(metavar="X", help="Largest ‖error‖ / ‖tensor‖ of each tensor."),
]
MinSnr = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(metavar="DB", help="Lowest signal-to-noise ratio of each tensor, in dB."),
]
MaxAbsError = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(metavar="X", help="Largest error of any element."),
]
BitsPerWeight = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(metavar="X", help="Bits of the file for each weight, every byte counted."),
]
TargetRatio = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(metavar="X", help="Bytes of the input over bytes of the file."),
]
TargetSize = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(parser=size, metavar="SIZE", help="Bytes of the file, such as 700MB."),
]
Codec = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        metavar="SELECTOR=TREE",
        help="A tree for tensors by role, name, pattern of names or all; may be repeated.",
    ),
]
Importance = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        parser=path,
        metavar="FILE",
        help="A safetensors file that says what an error costs in each tensor.",
    ),
]
OptionalEffort = Annotated[
    Optional[Effort],  # noqa: UP045
    typer.Option(help="What size is worth in time: balanced by default, or the profile's."),
]


def budget_of(**limits: float | None) -> Any:
    """Return the budget of the options that are given; None if none is."""
    from tensorcomp.planning import Budget

    given = {name: value for name, value in limits.items() if value is not None}
    return Budget(**given) if given else None  # type: ignore[arg-type]
