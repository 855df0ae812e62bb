"""Options that several verbs share: inputs and outputs, budgets, pruning."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .command import MOST_USED, OUTPUT, Option
from .quantity import bandwidth, duration, size

if TYPE_CHECKING:
    from tensorcomp.pipeline.options import CompressOptions
    from tensorcomp.planning.budgets import Budget
    from tensorcomp.selection.request import Pruning

Verb = TypeVar("Verb", bound=Callable[..., Any])

_LIMITS = (
    *("max_rel_l2", "min_snr", "max_abs_error", "max_output_error"),
    *("bits_per_weight", "target_ratio", "target_size"),
)
# Options that mean nothing without --prune, and the field of `Pruning` that each sets.
_PRUNING_FIELDS = {
    "--sparsity": "sparsity",
    "--scope": "scope",
    "--granularity": "granularity",
    "--prune-where": "where",
    "--density-floor": "floor",
    "--prune-max-rel-l2": "max_rel_l2",
    "--prune-target-size": "target_size",
    "--repair": "repair",
}
_PRUNING_TARGETS = ("--sparsity", "--prune-max-rel-l2", "--prune-target-size")


class _PathType(click.Path):
    """A path or URL, but no empty one, which is the current folder to `Path`, and no stream."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            self.fail("the path is empty", param, ctx)
        if value == "-":
            self.fail("a checkpoint is a file, not a stream; ./- is a file's path", param, ctx)
        if isinstance(value, str) and "://" in value:
            from tensorcomp.io.locations import location

            return location(value)
        return super().convert(value, param, ctx)


path = _PathType(path_type=Path, readable=False)


def together(*options: Callable[[Verb], Verb]) -> Callable[[Verb], Verb]:
    """Return one decorator for several options, which help shows in this order."""

    def decorate(verb: Verb) -> Verb:
        for decorator in reversed(options):
            verb = decorator(verb)
        return verb

    return decorate


# What the placeholders of help pages stand for; a text, where it is none of these.
_TYPES = {
    **dict.fromkeys(("FILE", "OUT", "INPUT", "ORIGINAL"), path),
    **dict.fromkeys(("X", "DB", "T"), float),
    "N": click.IntRange(min=1),
    "SIZE": size,
    "RATE": bandwidth,
    "TIME": duration,
}


def option(
    names: str, text: str, *, group: str = "Options", dest: str | None = None, **settings: Any
) -> Callable[[Verb], Verb]:
    """Return an option of its placeholder's type, or a flag without one.

    Its names are those of the help page, such as ``-o, --output OUT``; ``dest`` is the parameter of
    the verb, where that has another name.
    """
    words = names.replace(",", "").split()
    if not words[-1].startswith("-"):
        metavar = words.pop()
        settings = {"metavar": metavar, "type": _TYPES.get(metavar), **settings}
    elif not settings.keys() & {"type", "count"}:
        settings["is_flag"] = True
    if dest is not None:
        words.append(dest)
    return click.option(*words, cls=Option, group=group, help=text, **settings)


_most_used = partial(option, group=MOST_USED)
_budget = partial(option, group="Budget (one limit)")
_planning = partial(option, group="Planning")
_pruning = partial(option, group="Pruning")
printing = partial(option, group=OUTPUT)

source = click.argument("source", type=path, metavar="INPUT", help="A checkpoint file or a folder.")
threads = option("--threads N", "Threads to use; all processors by default.")
bases = option(
    "--bases PATH",
    "File or folder to find the bases of a compressed file in, besides its own folder; may be "
    "repeated.",
    type=path,
    multiple=True,
)
force = printing("--force", "Replace an existing output.")
replace = printing(
    "--replace [=lossy]",
    "Delete each input file when what takes its place is verified and on the disk; =lossy "
    "allows that where something is lost.",
    type=click.Choice(["lossless", "lossy"]),
    callback=lambda _ctx, _option, value: value if value == "lossy" else value is not None,
)
keep_names = printing(
    "--keep-names",
    "Of a folder: give compressed safetensors files the names of their originals, for hosts that "
    "look for no others.",
)
report = printing(
    "--report FILE",
    "Save a page of all figures (.html), or a section of a model card (.md).",
)
forced_report = together(
    report,
    printing("--force", "Replace an existing report.", dest="force_report", argument="force"),
)
metrics = printing(
    "--metrics FILE.prom",
    "Keep counts of bytes, tensors, seconds and failures there as OpenMetrics text.",
    type=_PathType(path_type=Path, dir_okay=False),
)
_json = printing("--json", "Print one JSON object, no text.")
_amounts = (
    printing("-q, --quiet", "Print no progress, no remarks: errors and tables only."),
    printing(
        "-v, --verbose",
        "Log to stderr what is done; -vv: each tensor.",
        count=True,
        show_default=False,
    ),
)
as_json = together(_json, *_amounts)
all_forms = together(
    _json,
    printing("--csv", "Print comma-separated values."),
    printing("--markdown", "Print the table in Markdown."),
    *_amounts,
)


def output(
    text: str = "Where to write.", metavar: str = "OUT", **settings: Any
) -> Callable[[Verb], Verb]:
    """Return the option ``-o``."""
    return _most_used(f"-o, --output {metavar}", text, dest="out", **settings)


_lossy_options = together(
    _most_used(
        "--profile NAME",
        "lossless (default), transformer, cnn, mlp, memory, speed, training, or a .toml file.",
    ),
    _most_used("--min-snr DB", "A budget: lowest signal-to-noise ratio of each tensor, in dB."),
    _most_used("--bits-per-weight X", "A budget: bits of the file per weight, every byte counted."),
    _most_used(
        "--effort",
        "What size is worth in time: balanced by default, or the profile's.",
        type=click.Choice(["fast", "balanced", "max"]),
    ),
    _budget("--max-rel-l2 X", "Largest ‖error‖ / ‖tensor‖ of each tensor, below 1."),
    _budget("--max-abs-error X", "Largest error of any element."),
    _budget(
        "--max-output-error X",
        "Largest relative error of what a layer returns, below 1, by --stats.",
    ),
    _budget("--target-ratio X", "Bytes of the input over bytes of the file."),
    _budget(
        "--target-size SIZE",
        "Bytes of the file, or of all files compressed, such as 700MB.",
    ),
    _planning(
        "--codec SELECTOR=TREE",
        "A tree for tensors by role, name, pattern of names, all, or all but '!SELECTOR'; may be "
        "repeated.",
        dest="codecs",
        multiple=True,
    ),
    _planning(
        "--importance FILE",
        "A safetensors file that says what an error costs in each tensor.",
    ),
    _planning(
        "--stats FILE",
        "Statistics that tensorcomp calibrate measured: trees, sizes and output errors are met at "
        "the least loss of the model; bounds of each tensor's own error gain nothing. Scores of "
        "pruning read them, too.",
        argument="(?:stats|statistics)",
    ),
)
_base_options = together(
    _most_used(
        "--base FILE",
        "A relative of the model, such as the one it was tuned from: store what differs. "
        "Decompressing needs it, too.",
    ),
    _planning(
        "--of",
        "What a relative budget is relative to: each tensor, or what changed since the base.",
        type=click.Choice(["weights", "update"]),
        default="weights",
    ),
    _planning(
        "--policy",
        "What a training state loses: exact, nothing; resume, weights in steps of 0.6 root mean "
        "squares of their update, moments coarsely; archive, in steps of 2, first moments zero. "
        "Weights err by 5 % at most. Measured with 1.3 million weights.",
        type=click.Choice(["exact", "resume", "archive"]),
        default="exact",
    ),
)
_plan_option = _planning("--plan FILE", "Obey a plan that tensorcomp plan wrote.")
_prune_options = together(
    _pruning(
        "--prune SCORE",
        "Set the weights of lowest score to zero first: magnitude, lamp, random(SEED), or "
        "snip, grasp, taylor, gradient, synflow, wanda, obs, obd, which need --stats; without them "
        "obd takes Adam's state of a training checkpoint.",
    ),
    _pruning("--sparsity X", "The exact part of the pruned tensors' weights, from 0 to 1."),
    _pruning(
        "--scope",
        "Among which weights: the score's own choice by default; tensor for what is more than "
        "single weights.",
        type=click.Choice(["global", "tensor", "row"]),
    ),
    _pruning(
        "--granularity TEXT",
        "What is pruned together: element (default), row, filter, channel, 'block(4, 4)', "
        "'nm(2, 4)'.",
    ),
    _pruning(
        "--prune-where SELECTOR",
        "Which tensors, by role, name or pattern of names, or all but '!SELECTOR'; may be "
        "repeated. Matrices and kernels of layers by default.",
        multiple=True,
        argument="where",
    ),
    _pruning(
        "--density-floor X",
        "The least part of each tensor that stays; 0.001 by default.",
        argument="floor",
    ),
    _pruning(
        "--prune-max-rel-l2 X",
        "Instead of --sparsity: the largest ‖error‖ / ‖tensor‖ of each tensor.",
        argument="the rel-L2 of pruning",
    ),
    _pruning(
        "--prune-target-size SIZE",
        "Instead of --sparsity: prune until the file takes at most so many bytes.",
        argument="the target size in bytes",
    ),
    _pruning(
        "--repair",
        "Change the weights that stay so that they make up for the others, by the second moments "
        "in --stats.",
        default=None,
    ),
)
plan_options = together(_lossy_options, _prune_options, threads, force)
job_options = together(
    _lossy_options, _base_options, _plan_option, _prune_options, threads, bases, force
)


def options_of(given: dict[str, Any]) -> CompressOptions:
    """Return how to compress, from ``plan_options`` or ``job_options``."""
    statistics = given.pop("stats")
    budget, prune = _budget_of(given), _pruning_of(given, statistics)
    from tensorcomp.pipeline.options import CompressOptions

    return CompressOptions(budget=budget, prune=prune, statistics=statistics, **given)


def _budget_of(options: dict[str, Any]) -> Budget | None:
    """Pop the limits from a verb's options, and return their budget, if any."""
    limits = {name: options.pop(name) for name in _LIMITS}
    given = {name: value for name, value in limits.items() if value is not None}
    if not given:
        return None
    if given.get("max_rel_l2", 0.0) >= 1 or given.get("min_snr", 1.0) <= 0:
        raise click.UsageError(
            "at a rel-L2 of 1, an SNR of 0 dB, every weight may become 0; "
            "give --max-rel-l2 below 1 or --min-snr above 0"
        )
    if given.get("max_output_error", 0.0) >= 1:
        raise click.UsageError(
            "at an output error of 1 every weight may become 0; give --max-output-error below 1"
        )
    from tensorcomp.planning.budgets import Budget

    return Budget(**given)


def _pruning_of(options: dict[str, Any], statistics: Path | None) -> Pruning | None:
    """Pop the pruning options from a verb's options, and return them, if any.

    Statistics go to scores that read any, and to repair.
    """
    score = options.pop("prune")
    values = {name: options.pop(name[2:].replace("-", "_")) for name in _PRUNING_FIELDS}
    given = {name: value for name, value in values.items() if value not in (None, ())}
    if score is None:
        if given:
            raise click.UsageError(f"{next(iter(given))} says how to prune: give --prune SCORE")
        return None
    from tensorcomp.selection.granularity import NM, parse_granularity
    from tensorcomp.selection.request import Pruning
    from tensorcomp.selection.scores import parse_score

    reads = values["--repair"] or parse_score(score).statistic is not None
    stats = statistics if reads else None
    targets = [name for name in _PRUNING_TARGETS if name in given]
    if len(targets) > 1:
        raise click.UsageError(f"pruning has one target; got {' and '.join(targets)}")
    granularity = parse_granularity(values["--granularity"] or "element")
    if not targets and not isinstance(granularity, NM):
        raise click.UsageError(
            f"how much is to be pruned is not said: give {', '.join(_PRUNING_TARGETS[:-1])} or "
            f"{_PRUNING_TARGETS[-1]}"
        )
    fields = {_PRUNING_FIELDS[name]: value for name, value in given.items()}
    return Pruning(score, stats=stats, **fields)
