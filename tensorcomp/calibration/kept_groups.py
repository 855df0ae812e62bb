"""Keep the finished part of a calibration, for a run that goes on."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tensorcomp.planning.statistics import Statistics


class KeptGroups:
    """Finished groups, in files beside the output until that is written."""

    def __init__(self, out: Path | None, job: str) -> None:
        self._out = out
        self._job = job

    def load(self) -> list[Statistics]:
        """Return the groups that are finished; drop those of other jobs."""
        if self._out is None:
            return []
        own = [path for path in _partial_files(self._out) if f"-{self._job}-" in path.name]
        for path in set(_partial_files(self._out)) - set(own):
            path.unlink()
        found: list[Statistics] = []
        while self._path(len(found)).exists():
            found.append(Statistics.load(self._path(len(found))))
        return found

    def save(self, number: int, part: Statistics) -> Statistics:
        """Keep a finished group, and return it as a view of its file."""
        if self._out is None:
            return part
        path = self._path(number)
        part.save(path, force=True)
        return Statistics.load(path)

    def _path(self, number: int) -> Path:
        assert self._out is not None
        return self._out.with_name(f"{self._out.name}.partial-{self._job}-{number}")


def written(found: Statistics, out: Path | None, *, force: bool) -> Statistics:
    """Write the statistics, if asked to, and drop what was kept beside them."""
    if out is None:
        return found
    found.save(out, force=force)
    for path in _partial_files(out):
        with contextlib.suppress(PermissionError):  # of a mapped file, on Windows
            path.unlink()
    return Statistics.load(out)


def _partial_files(out: Path) -> list[Path]:
    """Return the files of finished groups beside an output."""
    beginning = f"{out.name}.partial-"
    return [path for path in out.parent.iterdir() if path.name.startswith(beginning)]
