"""``tensorcomp series``: many checkpoints of one training run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .command import Command, Result
from .options import all_forms, as_json, force, option, output, path, threads

if TYPE_CHECKING:
    from tensorcomp._tables import Table
    from tensorcomp.progress import Progress
    from tensorcomp.series.journal import Step
    from tensorcomp.series.series import Series

_POLICIES = click.Choice(["exact", "resume", "archive"])
_NUMBER = click.IntRange(min=0)
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_run, _existing_run = (
    click.argument("run", type=kind, metavar="RUN", help="The folder of the series.")
    for kind in (path, _FOLDER)
)


@click.group(no_args_is_help=False)
def series() -> None:
    """Many checkpoints of one training run, each as what changed.

    A series is a folder of ordinary compressed files, one a step, and a journal.
    """


@series.command(cls=Command)
@_run
@click.argument("source", type=path, metavar="INPUT", help="A checkpoint file or a folder.")
@option(
    "--step N",
    "Its number; by default that of the trainer or at the end of the name.",
    type=_NUMBER,
)
@option("--policy", "What it may lose.", type=_POLICIES, default="exact")
@option("--base FILE", "What the first step was tuned from, which is copied into the series.")
@option("--external-base", "Leave the base where it is; no step can be read without it.")
@option("--metric X", "By which thin may keep the best; lower is better. A trainer's eval_loss.")
@option("--keyframe-every N", "Steps from one that needs no other to the next.", default=16)
@threads
@as_json
def add(
    run: Path, source: Path, *, threads: int | None, keyframe_every: int, **asked: Any
) -> Result:
    """Add a checkpoint: a file, or a folder of a training state.

    It is coded against the step before. Weights, optimizer, scheduler, random generators: every
    file of a folder is kept, and restored byte for byte under the policy exact.

    \b
    Examples:
      tensorcomp series add run checkpoint-1500/
      tensorcomp series add run model.pt --step 2000 --policy resume
    """  # noqa: D301 - \b keeps the example's lines as they are
    from tensorcomp._formatting import bytes_text, ratio_text

    with _series(run, "adding", keyframe_every=keyframe_every, threads=threads) as (found, watch):
        step = found.add_path(source, progress=watch, **asked)
    kind = "a keyframe" if step.base is None else f"{step.depth} deep"
    text = f"Step {step.step}: {bytes_text(step.nbytes)}, {ratio_text(step.ratio)} times smaller"
    return Result(lambda: _record(step), summary=(f"{text}, {kind}",))


@series.command(cls=Command)
@_existing_run
@all_forms
def ls(run: Path) -> Result:
    """List the steps: sizes, errors, and how training goes on from each."""
    from tensorcomp.series.series import Series

    return _listed(Series(run).steps)


@series.command(cls=Command)
@_existing_run
@click.argument("step", type=_NUMBER, metavar="STEP", help="Its number.")
@output("A file or, of a step of several files, a folder.", required=True)
@option("--only", "Of a step: one safetensors file of its weights.", type=click.Choice(["weights"]))
@threads
@force
@as_json
def get(
    run: Path, step: int, out: Path, *, only: str | None, threads: int | None, force: bool
) -> Result:
    """Write a step as it was added; what is written needs no other file.

    \b
    Examples:
      tensorcomp series get run 1500 -o checkpoint-1500
      tensorcomp series get run 1500 --only weights -o model.safetensors
    """  # noqa: D301 - \b keeps the example's lines as they are
    from tensorcomp._formatting import printable

    with _series(run, "restoring", threads=threads) as (found, watch):
        found.get(step, out=out, only_weights=only is not None, force=force, progress=watch)
    line = f"Step {step} written as {printable(str(out))}"
    return Result(lambda: {"step": step, "path": str(out)}, summary=(line,))


@series.command(cls=Command)
@_existing_run
@option(
    "--keep-optimizer, --keep TEXT",
    "Steps that stay as they are: last:2, every:5000, best:3, or several by commas; may be "
    "repeated.",
    dest="kept",
    multiple=True,
    default=["last:2"],
)
@option("--policy", "Bound the error of old steps instead.", type=click.Choice(["archive"]))
@threads
@as_json
def thin(run: Path, *, kept: Sequence[str], policy: str | None, threads: int | None) -> Result:
    """Drop the optimizer's state of old steps; keep their weights exact.

    With --policy archive old steps keep the second moments' rank-1 part, and weights in steps of
    two root mean squares of their change: 26 to 66 times smaller than the state, keyframes 3 to 4
    times, measured on a model of 1.3 million weights only. Steps coded against a changed one are
    written anew first. Old files stay until gc removes them; the newest step stays as it is.

    \b
    Example:
      tensorcomp series thin run --keep last:2,every:5000 --keep best:3
    """  # noqa: D301 - \b keeps the example's lines as they are
    with _series(run, "thinning", threads=threads) as (found, watch):
        found.thin(kept, policy=policy, progress=watch)
        return _listed(found.steps)


@series.command(cls=Command)
@_existing_run
@option("--every N", "Steps so deep become keyframes.", default=8)
@threads
@as_json
def rebase(run: Path, *, every: int, threads: int | None) -> Result:
    """Make new keyframes, so that chains are shorter.

    They are new files; the old ones stay until gc removes them.
    """
    with _series(run, "rebasing", threads=threads) as (found, watch):
        found.rebase(every, watch)
        return _listed(found.steps)


@series.command(cls=Command)
@_existing_run
@option("--deep", "Decode every tensor as well.")
@as_json
def verify(run: Path, *, deep: bool) -> Result:
    """Find damaged files, and name every step that each takes with it."""
    from tensorcomp._formatting import counted
    from tensorcomp.errors import VerificationError

    with _series(run, "verifying") as (found, watch):
        faults, count = found.verify(deep=deep, progress=watch), len(found.steps)
    records = [fault.__dict__ for fault in faults]
    listed = [("; steps " if f.steps else "") + ", ".join(map(str, f.steps)) for f in faults]
    lines = [fault.error + steps for fault, steps in zip(faults, listed, strict=True)]
    failure = VerificationError(f"{counted(len(faults), 'damaged file')}") if faults else None
    sound = () if faults else (f"{counted(count, 'step')} checked: sound",)
    return Result(
        lambda: {"steps": count, "sound": not faults, "faults": records},
        summary=(*lines, *sound),
        failure=failure,
    )


@series.command(cls=Command)
@_existing_run
@option("--dry-run", "Change nothing; say what would be done.")
@option("--grace TIME", "How long a file stays after it is named: 90s, 2h, 1d.", default="3600s")
@as_json
def gc(run: Path, *, dry_run: bool, grace: float) -> Result:
    """Remove files that no step needs, in two phases.

    They are named first; those named before, and long enough ago, are removed.
    """
    from tensorcomp._formatting import counted
    from tensorcomp.series.series import Series

    with Series(run) as found:
        named, removed = found.gc(grace, dry_run=dry_run)
    line = f"{counted(len(named), 'file')} named, {counted(len(removed), 'file')} removed"
    return Result(
        lambda: {"named": named, "removed": removed, "dry_run": dry_run},
        summary=(*named, *removed, f"{line}{', if this were no dry run' if dry_run else ''}"),
    )


@contextlib.contextmanager
def _series(run: Path, doing: str, **settings: Any) -> Iterator[tuple[Series, Progress]]:
    """Open a series, and show the progress of a verb."""
    from tensorcomp.series.series import Series

    from .progress import progress

    with Series(run, **settings) as found, progress(doing) as watch:
        yield found, watch


def _listed(steps: Sequence[Step]) -> Result:
    from tensorcomp._formatting import bytes_text, counted, ratio_text

    if not steps:
        return Result(lambda: {"steps": []}, summary=("There are no steps",))
    held, given = (sum(getattr(s, name) for s in steps) for name in ("nbytes", "source_bytes"))
    total = f"{counted(len(steps), 'step')}: {bytes_text(held)} of {bytes_text(given)}, "
    summary = f"{total}{ratio_text(given / max(held, 1))} times smaller"
    return Result(lambda: {"steps": [_record(s) for s in steps]}, _table(steps), summary=(summary,))


def _record(step: Step) -> dict[str, Any]:
    return {**step.__dict__, "ratio": step.ratio, "resumable": step.resumable}


def _table(steps: Sequence[Step]) -> Table:
    import time

    from tensorcomp._formatting import ratio_text
    from tensorcomp._tables import Column, Table

    def error(value: float) -> str:
        return f"{value:.2g}" if value else "exact"

    forms: dict[str, Callable[[Any], str]] = {
        "step": str,
        "time": lambda seconds: time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)),
        "nbytes": "{:,}".format,
        "ratio": ratio_text,
        "depth": lambda depth: str(depth) if depth else "keyframe",
        "weights_error": error,
        "moments_error": error,
        "resumable": str,
    }

    def value(step: Step, key: str) -> Any:
        return getattr(step, key) if step.has_optimizer or key != "moments_error" else None

    titles = ("Step", "Time", "Bytes", "Ratio", "Depth", "Weights", "Moments", "Resumable")
    named = zip(titles, forms.items(), strict=True)
    return Table([Column(t, key, partial(value, key=key), f) for t, (key, f) in named], steps)
