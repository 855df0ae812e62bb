"""Add a step to a series: choose its base, write its file, then the journal."""

from __future__ import annotations

import contextlib
import json
import math
import operator
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tensorcomp.checkpoints.base import Checkpoint
from tensorcomp.errors import CheckpointError, OptionError
from tensorcomp.io.files import writing
from tensorcomp.pipeline.options import CompressOptions
from tensorcomp.progress import Progress
from tensorcomp.series.chain import opened
from tensorcomp.series.journal import (
    BASE,
    Journal,
    Step,
    free_name,
    load_journal,
    write_journal,
    writing_alone,
)
from tensorcomp.series.write import EXACT, Base, write_step

_DIGITS = 18  # of the number of a step
_SMALLER = 0.995  # of a keyframe's bytes that a step against it takes at most


def step_metadata(step: int, policy: str = EXACT, metric: float | None = None) -> dict[str, Any]:
    """Return what is recorded of a step, now.

    Raises
    ------
    OptionError
        If its number, policy or metric is none.
    """
    CompressOptions(policy=policy)  # which checks it
    try:
        number, value = operator.index(step), math.nan if metric is None else float(metric)
    except (TypeError, ValueError) as error:
        raise OptionError(f"expected a whole step, and a number as metric: {error}") from error
    if not 0 <= number < 10**_DIGITS:
        raise OptionError(f"expected a step of 0 or more and {_DIGITS} digits, got {number}")
    known = value if math.isfinite(value) else None
    return {"step": number, "policy": policy, "metric": known, "time": time.time()}


def add_step(
    folder: Path,
    every: int,
    threads: int | None,
    parts: Mapping[str, Checkpoint],
    about: Mapping[str, Any],
    outside: Base | None = None,
    progress: Progress | None = None,
    done: Callable[[], None] = lambda: None,
) -> Step:
    """Write the files of a step to a series, and return its record.

    Parameters
    ----------
    folder : Path
        Of the series, made if it is not there.
    every : int
        Steps from one keyframe to the next.
    threads : int, optional
    parts : mapping of str to Checkpoint
        The files, by their paths.
    about : mapping
        As `step_metadata` returns it.
    outside : Base, optional
        A base that is not in the series.
    progress : Progress, optional
    done : callable
        Called when all is written and nothing is named yet; may raise.

    Raises
    ------
    CheckpointError
        If the series has the step already, or it cannot be written.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with writing_alone(folder):
        journal, number = load_journal(folder), int(about["step"])
        if any(one.step == number for one in journal.steps):
            raise CheckpointError(
                f"has step {number} already, and nothing is overwritten; give another number",
                path=folder,
            )
        base = outside or _base(folder, journal, number, every)
        target, policy = folder / free_name(folder, number), str(about["policy"])
        step = write_step(parts, target, about, base, policy, threads, progress, done=done)
        journal = Journal.of([*journal.steps, step], journal.trash)
        write_journal(folder, journal)
        return journal.find(number)


def _base(folder: Path, journal: Journal, number: int, every: int) -> Base | None:
    """Return the step before, or a base of all where that is too deep; None for a keyframe."""
    before = [step for step in journal.steps if step.step < number]
    near = [step for step in before[-1:] if step.depth + 1 < every]
    for step in near or [step for step in before if step.step == BASE]:
        most = _SMALLER * journal.chain(step)[0].nbytes
        return Base(step.file, partial(opened, folder, journal, step), most)
    return None


def trainer_state(path: Path) -> tuple[int | None, float | None]:
    """Return the step and loss of a checkpoint, by its trainer or name."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        state = json.loads((path / "trainer_state.json").read_text("utf-8"))
        losses = [log["eval_loss"] for log in state.get("log_history", ()) if "eval_loss" in log]
        return int(state["global_step"]), losses[-1] if losses else None
    found = re.search(r"(\d{1,18})$", path.name if path.is_dir() else path.name.partition(".")[0])
    return (None if found is None else int(found[1])), None
