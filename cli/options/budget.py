"""Options that say what may be lost: profile, budget, trees, importance."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from .common import path, together

if TYPE_CHECKING:
    from tensorcomp.planning.budgets import Budget

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmg]i?)?b?\s*", re.IGNORECASE)


def size(text: str) -> int:
    """Return the bytes that a text such as ``700MB`` or ``1.5GiB`` says."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"{text!r} is no size; give one like 700MB or 1.5GiB")
    return int(float(match[1]) * _UNITS[(match[2] or "").lower()])


_LIMITS = (
    "max_rel_l2",
    "min_snr",
    "max_abs_error",
    "bits_per_weight",
    "target_ratio",
    "target_size",
)

lossy_options = together(
    click.option(
        "--profile",
        metavar="NAME",
        help="lossless (default), transformer, cnn, mlp, memory, speed, or a .toml file.",
    ),
    click.option(
        "--max-rel-l2",
        type=float,
        metavar="X",
        help="Largest ‖error‖ / ‖tensor‖ of each tensor.",
    ),
    click.option(
        "--min-snr",
        type=float,
        metavar="DB",
        help="Lowest signal-to-noise ratio of each tensor, in dB.",
    ),
    click.option("--max-abs-error", type=float, metavar="X", help="Largest error of any element."),
    click.option(
        "--bits-per-weight",
        type=float,
        metavar="X",
        help="Bits of the file for each weight, every byte counted.",
    ),
    click.option(
        "--target-ratio",
        type=float,
        metavar="X",
        help="Bytes of the input over bytes of the file.",
    ),
    click.option(
        "--target-size", type=size, metavar="SIZE", help="Bytes of the file, such as 700MB."
    ),
    click.option(
        "--codec",
        "codecs",
        multiple=True,
        metavar="SELECTOR=TREE",
        help="A tree for tensors by role, name, pattern of names or all; may be repeated.",
    ),
    click.option(
        "--importance",
        type=path,
        metavar="FILE",
        help="A safetensors file that says what an error costs in each tensor.",
    ),
)

effort_option = click.option(
    "--effort",
    type=click.Choice(["fast", "balanced", "max"]),
    help="What size is worth in time: balanced by default, or the profile's.",
)


def budget_of(options: dict[str, Any]) -> Budget | None:
    """Take the limits out of a verb's options, and return their budget; None if none is given."""
    limits = {name: options.pop(name) for name in _LIMITS}
    given = {name: value for name, value in limits.items() if value is not None}
    if not given:
        return None
    from tensorcomp.planning.budgets import Budget

    return Budget(**given)
