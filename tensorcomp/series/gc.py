"""Write steps of a series again, and remove the files that no step needs.

Nothing is overwritten and nothing that a step needs is removed: steps are first written as new
files, then the journal names those in place of the old ones, which are removed by a later `collect`
when a time of grace is over.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from tensorcomp.checkpoints.base import Checkpoint
from tensorcomp.errors import OptionError, TensorcompError
from tensorcomp.io.files import is_temporary, writing
from tensorcomp.progress import Progress
from tensorcomp.series.chain import opened
from tensorcomp.series.journal import (
    BASE,
    Journal,
    Step,
    describe,
    free_name,
    is_step_file,
    load_journal,
    number_of,
    write_journal,
)
from tensorcomp.series.parts import open_parts, without_optimizer
from tensorcomp.series.write import EXACT, Base, write_step

_THIN = "thin"


def select(journal: Journal, selectors: Iterable[str]) -> set[int]:
    """Return the steps that selectors name, and the newest one.

    Parameters
    ----------
    journal : Journal
    selectors : iterable of str
        ``last:2``: the newest two; ``every:5000``: multiples; ``best:3``: of the lowest metrics.
        Several may be joined by commas.

    Raises
    ------
    OptionError
        If one is none of these.
    """
    steps = [step for step in journal.steps if step.step != BASE]
    found = {step.step for step in steps[-1:]}  # from which training goes on
    for selector in (part for text in selectors for part in text.split(",")):
        kind, _, text = selector.strip().partition(":")
        count = int(text) if text.isdecimal() else 0
        measured = [step for step in steps if step.metric is not None]
        chosen = {
            "last": steps[-count:],
            "every": [step for step in steps if step.step % max(count, 1) == 0],
            "best": sorted(measured, key=lambda step: step.metric or 0.0)[:count],
        }
        if kind not in chosen or not count:
            raise OptionError(f"expected last:N, every:N or best:N, got {selector!r}")
        found |= {step.step for step in chosen[kind]}
    return found


def thin(
    folder: Path, kept: Collection[int], policy: str | None, progress: Progress, threads: int | None
) -> Journal:
    """Drop the optimizer's state of all steps but some; or archive them."""
    journal = load_journal(folder)

    def change(step: Step) -> str | None:
        is_old = step.has_optimizer and step.step not in kept
        return (policy or _THIN) if is_old and step.policy != policy else None

    return _rewrite(folder, journal, change, progress, threads)


def rebase(folder: Path, every: int, progress: Progress, threads: int | None) -> Journal:
    """Make every step whose chain has `every` files before it a keyframe."""
    return _rewrite(folder, load_journal(folder), lambda _: None, progress, threads, every)


def _rewrite(
    folder: Path,
    journal: Journal,
    change: Callable[[Step], str | None],
    progress: Progress,
    threads: int | None,
    every: int | None = None,
) -> Journal:
    """Write steps again that change, or whose base did; then replace the journal.

    Their chains are found whole before anything is written.
    """
    new: dict[str, Step] = {}  # what became of each file
    altered: set[str] = set()  # files whose content is another now
    for step in journal.steps:
        if change(step) is not None:
            with opened(folder, journal, step):
                pass
    progress.begin(len(journal.steps), sum(step.source_bytes for step in journal.steps))
    for step in journal.steps:
        base, how = new.get(step.base or ""), change(step)
        depth = 0 if step.base is None else 1 + (0 if base is None else base.depth)
        is_cut = every is not None and depth >= every
        if how is None and step.base not in altered and not is_cut:
            kept_base = step.base if base is None else base.file
            new[step.file] = replace(step, base=kept_base, depth=depth)
        else:
            now = Journal.of(new.values())
            again = None
            if base is not None and not is_cut:
                again = Base(base.file, partial(opened, folder, now, base), math.inf)
            written = _written_again(folder, journal, step, again, how, threads)
            new[step.file] = replace(written, depth=0 if written.base is None else depth)
            altered |= set() if how is None else {step.file}
        progress.advance(step.file, step.source_bytes)
    gone = [old for old, step in new.items() if step.file != old]
    if gone:
        trash = {**journal.trash, **dict.fromkeys(gone, time.time())}
        journal = Journal.of(new.values(), trash)
        write_journal(folder, journal)
    return journal


def _written_again(
    folder: Path,
    journal: Journal,
    step: Step,
    base: Base | None,
    how: str | None,
    threads: int | None,
) -> Step:
    """Write a step as a new file against a base as that is now."""
    lossy = None if how == _THIN else how
    about = {
        "step": step.step,
        "time": step.time,
        "policy": lossy or step.policy,
        "metric": step.metric,
        "errors": (step.weights_error, 0.0 if how == _THIN else step.moments_error),
        "source_bytes": step.source_bytes,
    }
    target = folder / free_name(folder, step.step)
    with opened(folder, journal, step) as old:
        parts: Mapping[str, Checkpoint] = open_parts(old)
        if how == _THIN:
            parts = without_optimizer(parts)
        return write_step(parts, target, about, base, lossy or EXACT, threads)


def collect(folder: Path, grace: float, *, dry_run: bool = False) -> tuple[list[str], list[str]]:
    """Name files that no step needs in the journal; remove those named before.

    Parameters
    ----------
    folder : Path
    grace : float
        Seconds that a file has been named before it is removed: readers may still be at it.
    dry_run : bool
        Change nothing.

    Returns
    -------
    named, removed : list of str
    """
    journal, now = load_journal(folder), time.time()
    needed, known = ({getattr(s, key) for s in journal.steps} for key in ("file", "step"))
    for step in journal.steps:  # of a journal made again, some name files of other generations
        base = step.base or ""
        with contextlib.suppress(TensorcompError):
            while base not in needed and is_step_file(base):
                needed.add(base)
                base = describe(folder / base).base or ""
    # A file of a step that is not known is damaged, or lacks its base: both may come back.
    there = sorted(path.name for path in folder.iterdir() if number_of(path.name) in known)
    named = [name for name in there if name not in needed and name not in journal.trash]
    due = [
        name for name, since in journal.trash.items() if now - since >= grace and name not in needed
    ]
    if dry_run:
        return named, due
    trash = {name: since for name, since in journal.trash.items() if name not in needed}
    for path in folder.iterdir():
        if is_temporary(path) and path.is_file():  # of a killed run: no other writer is at work
            with writing(path):
                path.unlink()
    for name in sorted(due, reverse=True):  # a base after what needs it
        with writing(folder / name):
            (folder / name).unlink(missing_ok=True)
        del trash[name]
    write_journal(folder, Journal.of(journal.steps, trash | dict.fromkeys(named, now)))
    return named, due
