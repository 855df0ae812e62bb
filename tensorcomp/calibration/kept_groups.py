"""Keep the finished parts of a calibration, for a run that goes on."""

from __future__ import annotations

import contextlib
import glob
import itertools
from pathlib import Path

import xxhash

from tensorcomp.io.locations import is_remote
from tensorcomp.planning.statistics import Statistics


class KeptGroups:
    """Finished groups, in files beside the output until that is written."""

    def __init__(self, out: Path, job: str) -> None:
        self._out = out
        self._job = xxhash.xxh3_64_hexdigest(job.encode())

    def load(self) -> list[Statistics]:
        """Return the groups that are finished; drop those of other jobs."""
        for path in _partial_files(self._out):
            if f"-{self._job}-" not in path.name:
                path.unlink()
        paths = itertools.takewhile(Path.exists, map(self._path, itertools.count()))
        return list(map(Statistics.load, paths))

    def save(self, number: int, part: Statistics) -> Statistics:
        """Keep a finished group, and return it as a view of its file."""
        part.save(self._path(number), force=True)
        return Statistics.load(self._path(number))

    def _path(self, number: int) -> Path:
        return self._out.with_name(f"{self._out.name}.partial-{self._job}-{number}")


def written(found: Statistics, out: Path, *, force: bool) -> Statistics:
    """Write the statistics, and drop what was kept beside them."""
    found.save(out, force=force)
    for path in _partial_files(out):
        with contextlib.suppress(PermissionError):  # of a mapped file, on Windows
            path.unlink()
    return Statistics.load(out)


def _partial_files(out: Path) -> list[Path]:
    """Return the files of finished groups beside an output."""
    if is_remote(out):  # where nothing is kept
        return []
    return list(out.parent.glob(f"{glob.escape(out.name)}.partial-*"))
