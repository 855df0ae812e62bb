"""Options that say what may be lost: profile, budget, trees, importance."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ..command import MOST_USED, option
from .common import path, together
from .quantity import size

if TYPE_CHECKING:
    from tensorcomp.planning.budgets import Budget

_LIMITS = (
    *("max_rel_l2", "min_snr", "max_abs_error"),
    *("bits_per_weight", "target_ratio", "target_size"),
)
_most_used = partial(option, group=MOST_USED)
_budget = partial(option, group="Budget (one limit)", type=float, metavar="X")
_planning = partial(option, group="Planning")

lossy_options = together(
    _most_used(
        "--profile",
        metavar="NAME",
        help="lossless (default), transformer, cnn, mlp, memory, speed, or a .toml file.",
    ),
    _most_used(
        "--min-snr",
        type=float,
        metavar="DB",
        help="A budget: lowest signal-to-noise ratio of each tensor, in dB.",
    ),
    _most_used(
        "--bits-per-weight",
        type=float,
        metavar="X",
        help="A budget: bits of the file per weight, every byte counted.",
    ),
    _most_used(
        "--effort",
        type=click.Choice(["fast", "balanced", "max"]),
        help="What size is worth in time: balanced by default, or the profile's.",
    ),
    _budget("--max-rel-l2", help="Largest ‖error‖ / ‖tensor‖ of each tensor, below 1."),
    _budget("--max-abs-error", help="Largest error of any element."),
    _budget("--target-ratio", help="Bytes of the input over bytes of the file."),
    _budget("--target-size", type=size, metavar="SIZE", help="Bytes of the file, such as 700MB."),
    _planning(
        "--codec",
        "codecs",
        multiple=True,
        metavar="SELECTOR=TREE",
        help="A tree for tensors by role, name, pattern of names or all; may be repeated.",
    ),
    _planning(
        "--importance",
        type=path,
        metavar="FILE",
        help="A safetensors file that says what an error costs in each tensor.",
    ),
)
plan_option = _planning(
    "--plan", type=path, metavar="FILE", help="Obey a plan that tensorcomp plan wrote."
)


def budget_of(options: dict[str, Any]) -> Budget | None:
    """Take the limits out of a verb's options, and return their budget; None if none is given."""
    limits = {name: options.pop(name) for name in _LIMITS}
    given = {name: value for name, value in limits.items() if value is not None}
    if not given:
        return None
    if given.get("max_rel_l2", 0.0) >= 1 or given.get("min_snr", 1.0) <= 0:
        raise click.UsageError(
            "at a rel-L2 of 1, an SNR of 0 dB, every weight may become 0; "
            "give --max-rel-l2 below 1 or --min-snr above 0"
        )
    from tensorcomp.planning.budgets import Budget

    return Budget(**given)
