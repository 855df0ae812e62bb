"""Time a long job, and show how far it is: a bar where stderr is a terminal, or a log."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tensorcomp.progress import Progress

from .command import settings

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress


class Watch(Progress):
    """Times a job, and logs how far it is where that is asked for.

    Attributes
    ----------
    seconds : float
        From the start of the job to its end.
    work_seconds : float
        From the first byte of its input that it works on, where it says so.
    """

    def __init__(self, doing: str) -> None:
        self._created = time.perf_counter()
        self._begun: float | None = None
        self.seconds = self.work_seconds = 0.0
        self._logger = None
        if settings().verbose:
            import logging

            self._logger = logging.getLogger("tensorcomp")
            self._logger.info("%s", doing)

    def begin_folder(self, nbytes: int) -> None:
        """Note when work begins."""
        self._begun = self._begun or time.perf_counter()
        if self._logger is not None:
            self._logger.info("a folder of %s bytes", f"{nbytes:,}")

    def begin(self, tensors: int, nbytes: int) -> None:
        """Note when work begins."""
        self._begun = self._begun or time.perf_counter()
        if self._logger is not None:
            self._logger.info("a file of %s tensors, %s bytes", f"{tensors:,}", f"{nbytes:,}")

    def advance(self, name: str, nbytes: int) -> None:
        """Log what is done."""
        if self._logger is not None:
            self._logger.debug("%s: %s bytes done", name, f"{nbytes:,}")

    def count(self, done: int, total: int | None) -> None:
        """Show how many things are done, where bytes say nothing."""

    def stop(self) -> None:
        """Take the times."""
        now = time.perf_counter()
        self.seconds, self.work_seconds = now - self._created, now - (self._begun or self._created)
        if self._logger is not None:
            self._logger.info("done in %.3f s", self.seconds)


@contextlib.contextmanager
def progress(doing: str, unit: str = "tensors") -> Iterator[Watch]:
    """Show a bar of tensors, bytes, speed and time left until the block ends.

    Parameters
    ----------
    doing : str
        Such as ``compressing``.
    unit : str, optional
        Of other things, which have no bytes.
    """
    chosen = settings()
    with contextlib.ExitStack() as stack:
        watch = Watch(doing)
        if _has_bar() and not chosen.quiet and not chosen.verbose:
            watch = _Bar(stack.enter_context(_rich_progress(unit)), doing)
        yield watch
        watch.stop()


def _has_bar() -> bool:
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _rich_progress(unit: str) -> RichProgress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    in_bytes = (DownloadColumn(), TransferSpeedColumn()) if unit == "tensors" else ()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn(f"{{task.fields[items]}} {unit}"),
        *in_bytes,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        expand=True,
    )


class _Bar(Watch):
    """A bar over one file, or over all files of a folder, whose bytes `begin_folder` gives."""

    def __init__(self, shown: RichProgress, doing: str) -> None:
        super().__init__(doing)
        self._shown = shown
        self._task = shown.add_task(doing, total=None, items="0")
        self._in_folder = False
        self._expected = 0
        self._before = 0
        self._names: set[str] = set()

    def begin_folder(self, nbytes: int) -> None:
        super().begin_folder(nbytes)
        self._in_folder = True
        self._start(nbytes)

    def begin(self, tensors: int, nbytes: int) -> None:
        super().begin(tensors, nbytes)
        if not self._in_folder:
            self._start(nbytes)
        self._before += len(self._names)
        self._names.clear()
        self._expected += tensors

    def _start(self, nbytes: int) -> None:
        """Begin at zero, once more where a file is written again to keep a size."""
        self._before = self._expected = 0
        self._names.clear()
        self._shown.update(self._task, total=nbytes, completed=0)

    def advance(self, name: str, nbytes: int) -> None:
        self._names.add(name)
        done = self._before + len(self._names)
        self._shown.update(self._task, advance=nbytes, items=f"{done:,}/{self._expected:,}")

    def count(self, done: int, total: int | None) -> None:
        items = f"{done:,}/{'?' if total is None else f'{total:,}'}"
        self._shown.update(self._task, completed=done, total=total, items=items)
