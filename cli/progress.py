"""Time a long job, and show its progress as a bar or a log."""

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
    from pathlib import Path

    from rich.progress import Progress as RichProgress

    from tensorcomp.io.metrics_file import MetricsFile


class Watch(Progress):
    """Time a job from its start and from its first input byte; log its progress."""

    def __init__(self, doing: str, metrics: MetricsFile | None = None) -> None:
        self._metrics = metrics
        self._created = time.perf_counter()
        self._begun: float | None = None
        self._verbose = settings().verbose
        self.seconds = self.work_seconds = 0.0
        self._log(1, doing)

    def begin_folder(self, nbytes: int) -> None:
        """Note when work begins."""
        self._begun = self._begun or time.perf_counter()
        if self._metrics is not None:
            self._metrics.begin_folder(nbytes)
        self._log(1, f"a folder of {nbytes:,} bytes")

    def begin(self, tensors: int, nbytes: int) -> None:
        """Note when work begins."""
        self._begun = self._begun or time.perf_counter()
        if self._metrics is not None:
            self._metrics.begin(tensors, nbytes)
        self._log(1, f"a file of {tensors:,} tensors, {nbytes:,} bytes")

    def advance(self, name: str, nbytes: int) -> None:
        """Log what is done."""
        if self._metrics is not None:
            self._metrics.advance(name, nbytes)
        self._log(2, f"{name}: {nbytes:,} bytes done")

    def count(self, done: int, total: int | None) -> None:
        """Show how many things are done, where bytes say nothing."""

    def tell(self, *, output_bytes: int = 0, failures: int = 0) -> None:
        """Add what came of the job to its metrics."""
        if self._metrics is not None:
            self._metrics.output_bytes = output_bytes
            self._metrics.failures = failures

    def stop(self) -> None:
        """Take the times."""
        now = time.perf_counter()
        self.seconds, self.work_seconds = now - self._created, now - (self._begun or self._created)
        self._log(1, f"done in {self.seconds:.3f} s")

    def _log(self, verbose: int, text: str) -> None:
        if self._verbose >= verbose:
            import logging  # which takes milliseconds

            logging.getLogger("tensorcomp").log((logging.INFO, logging.DEBUG)[verbose - 1], text)


@contextlib.contextmanager
def progress(doing: str, unit: str = "tensors", metrics: Path | None = None) -> Iterator[Watch]:
    """Show a bar of tensors and bytes, or of another unit, until the block ends.

    Metrics are kept in a file, if one is given.
    """
    chosen = settings()
    in_terminal = sys.stderr is not None and sys.stderr.isatty()
    has_bar = in_terminal and os.environ.get("TERM") != "dumb"
    with contextlib.ExitStack() as stack:
        counts = stack.enter_context(_metrics_file(metrics, doing)) if metrics else None
        watch = Watch(doing, counts)
        if has_bar and not chosen.quiet and not chosen.verbose:
            watch = _Bar(stack.enter_context(_rich_progress(unit)), doing, counts)
        yield watch
        watch.stop()


def _metrics_file(path: Path, doing: str) -> MetricsFile:
    from tensorcomp.io.metrics_file import MetricsFile

    return MetricsFile(path, labels={"job": doing})


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
    """A bar over one file, or over all files of a folder."""

    def __init__(self, shown: RichProgress, doing: str, metrics: MetricsFile | None = None) -> None:
        super().__init__(doing, metrics)
        self._shown = shown
        self._task = shown.add_task(doing, total=None, items="0")
        self._in_folder = False
        self._files = self._expected = 0
        self._done: set[tuple[int, str]] = set()

    def begin_folder(self, nbytes: int) -> None:
        super().begin_folder(nbytes)
        self._in_folder = True
        self._start(nbytes)

    def begin(self, tensors: int, nbytes: int) -> None:
        super().begin(tensors, nbytes)
        if not self._in_folder:
            self._start(nbytes)
        self._files += 1
        self._expected += tensors

    def _start(self, nbytes: int) -> None:
        """Begin at zero, once more where a file is written again to keep a size."""
        self._expected = 0
        self._done.clear()
        self._shown.update(self._task, total=nbytes, completed=0)

    def advance(self, name: str, nbytes: int) -> None:
        if self._metrics is not None:
            self._metrics.advance(name, nbytes)
        self._done.add((self._files, name))
        items = f"{len(self._done):,}/{self._expected:,}"
        self._shown.update(self._task, advance=nbytes, items=items)

    def count(self, done: int, total: int | None) -> None:
        items = f"{done:,}/{'?' if total is None else f'{total:,}'}"
        self._shown.update(self._task, completed=done, total=total, items=items)
