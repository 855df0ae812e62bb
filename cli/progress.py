"""What a long job shows on stderr: a bar where that is a terminal, nothing elsewhere."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tensorcomp.progress import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress


@contextlib.contextmanager
def progress(doing: str) -> Iterator[Progress]:
    """Show a bar of tensors, bytes, speed and time left until the block ends.

    Parameters
    ----------
    doing : str
        Such as ``compressing``.
    """
    if sys.stderr is None or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield Progress()
        return
    with _rich_progress() as shown:
        yield _Bar(shown, doing)


def _rich_progress() -> RichProgress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[tensors]} tensors"),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        expand=True,
    )


class _Bar(Progress):
    """A bar over one file, or over all files of a folder, whose bytes `begin_folder` tells."""

    def __init__(self, shown: RichProgress, doing: str) -> None:
        self._shown = shown
        self._task = shown.add_task(doing, total=None, tensors="0")
        self._in_folder = False
        self._expected = 0
        self._before = 0
        self._names: set[str] = set()

    def begin_folder(self, nbytes: int) -> None:
        self._in_folder = True
        self._start(nbytes)

    def begin(self, tensors: int, nbytes: int) -> None:
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
        self._shown.update(self._task, advance=nbytes, tensors=f"{done}/{self._expected}")
