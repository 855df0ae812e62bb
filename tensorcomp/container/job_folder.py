"""Keep what the parts of a job share beside its output, until it is whole.

``NAME.tc.partial`` holds ``job.json``, made once by whoever is first; ``shards``, the compressed
files, each of which appears whole; and ``reports``, one for each of them. Objects of a store cannot
be renamed: there the compressed files go to ``NAME.tc`` at once, which is marked as unfinished.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from tensorcomp._formatting import counted
from tensorcomp._log import LOGGER
from tensorcomp.errors import PARSING_ERRORS, CheckpointError, MissingFileError
from tensorcomp.io.files import UNFINISHED, atomic_file, reading, writing
from tensorcomp.io.locations import is_remote, location

PARTIAL = ".partial"
_JOB, _STAGED, _REPORTS = "job.json", "shards", "reports"
_VERSION = 1
_TRIES, _PAUSE = 600, 0.1  # seconds; while another process writes the job
_WAITS, _WAIT = 120, 5.0  # the heads of 1,000 shards take three minutes


@dataclass(frozen=True)
class JobFolder:
    """Job of compressing a folder in parts, and where they are put.

    Paths of shards are relative to the folders.

    Parameters
    ----------
    target : Path
        The folder that the parts will be.
    source : Path
        The folder that is compressed.
    options : dict of str to str
        How: every process must be asked for the same.
    outputs : dict of str to str
        What each shard of the source becomes.
    sizes : dict of str to int
        Bytes of each shard of the source.
    keep_names : bool
    parts : int or None
        How many there are, where somebody said so.
    repeated : list of str
        Names of tensors that several shards have.
    measured : dict of str to list of int
        Shapes of the tensors that there are statistics of, by their names in a plan.
    budget : dict of str to float
        Of all files together.
    """

    target: Path
    source: Path
    options: dict[str, str]
    outputs: dict[str, str]
    sizes: dict[str, int]
    keep_names: bool = False
    parts: int | None = None
    repeated: list[str] = field(default_factory=list)
    measured: dict[str, Sequence[int]] = field(default_factory=dict)
    budget: dict[str, float] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The folder of everything that is unfinished."""
        return partial_folder(self.target)

    def staged(self, shard: str = "") -> Path:
        """Return the path of a compressed shard, or their folder."""
        folder = self.target if is_remote(self.target) else self.folder / _STAGED
        return folder / self.outputs.get(shard, ".")

    def report(self, shard: str) -> Path:
        """Return the path of a shard's report."""
        return self.folder / _REPORTS / f"{self.outputs[shard]}.json"


def partial_folder(target: Path) -> Path:
    """Return the folder of what is unfinished of an output folder.

    Raises `CheckpointError` if that has no name, as the root of a file system.
    """
    if not target.name:
        raise CheckpointError("expected a folder that has a name; give its path", path=target)
    return target.with_name(target.name + PARTIAL)


def read_job(target: Path) -> JobFolder | None:
    """Return the job of an output folder, if there is one.

    Raises
    ------
    CheckpointError
        If its file is damaged.
    """
    path = partial_folder(target) / _JOB
    value = read_json(path)
    if value is None:
        return None
    try:
        if value.pop("tensorcomp_job") != _VERSION:
            raise ValueError("another version")
        return _checked(JobFolder(target, **{**value, "source": location(value["source"])}))
    except PARSING_ERRORS as error:
        raise CheckpointError(
            f"is not what this version writes of a job; remove {path.parent}, and begin again",
            path=path,
        ) from error


def _checked(job: JobFolder) -> JobFolder:
    """Require that no path leads out of the folders, and that figures are figures.

    Raises one of `PARSING_ERRORS`.
    """
    names = [*job.outputs, *job.outputs.values()]
    paths = [PurePath(name) for name in names]
    sound = (
        all(path.name and not path.anchor and ".." not in path.parts for path in paths)
        and b"\0" not in os.fsencode("".join(names))
        and len(set(job.outputs.values())) == len(job.outputs) == len(job.sizes)
        and all(0 <= int(job.sizes[shard]) == job.sizes[shard] for shard in job.outputs)
        and (job.parts is None or 1 <= int(job.parts) == job.parts)
        and None not in (*{**job.options}, *job.repeated, *job.measured.values())
        and all(map(math.isfinite, job.budget.values()))
    )
    if not sound:
        raise ValueError("others have written it")
    return job


def begin_job(target: Path, make: Callable[[], JobFolder], *, is_first: bool = True) -> JobFolder:
    """Return the job of an output folder; make it if nobody has.

    In a store, where heads of all files take long to read, those who are not the first wait for it.

    Raises
    ------
    CheckpointError
        If it cannot be written.
    """
    for turn in range(1 if is_first or not is_remote(target) else _WAITS):
        if turn and target.exists() and not (target / UNFINISHED).exists():
            break  # it is whole, and `make` says so
        if turn == 1:
            LOGGER.warning("%s: waits for the part 0, which begins it", partial_folder(target))
        time.sleep(_WAIT if turn else 0)
        if (found := read_job(target)) is not None:
            return found
    made, path = {"tensorcomp_job": _VERSION, **vars(make())}, partial_folder(target) / _JOB
    del made["target"]  # which each process may see elsewhere
    text = json.dumps(made, indent=1, default=str)  # ASCII: names of files need not be UTF-8
    with writing(path.parent):
        if is_remote(target):
            (target / UNFINISHED).write_text("tensorcomp compresses this folder in parts\n")
        else:
            (path.parent / _STAGED).mkdir(parents=True, exist_ok=True)
    for _ in range(_TRIES):
        try:
            with atomic_file(path, force=False) as file:
                file.write(text.encode())
        except CheckpointError as error:
            is_busy = isinstance(error.__cause__, BlockingIOError)
            if not is_busy and not path.exists():
                raise
        if (found := read_job(target)) is not None:
            return found
        time.sleep(_PAUSE)
    raise CheckpointError("another run is writing it; run again", path=path)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return a file's object, empty if it holds none; None without a file."""
    try:
        with reading(path):
            value = json.loads(path.read_bytes())
    except MissingFileError:
        return None
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def refuse_partial(path: Path) -> None:
    """Raise `CheckpointError` if a folder is that of an unfinished job."""
    if not path.name.endswith(PARTIAL) or not (path / _JOB).is_file():
        return
    job = read_job(path.with_name(path.name.removesuffix(PARTIAL)))
    assert job is not None
    with reading(path):
        done = sum(job.report(shard).exists() for shard in job.outputs)
    raise CheckpointError(
        f"is unfinished: {done} of {counted(len(job.outputs), 'shard')}; run the parts that are "
        "missing, then tensorcomp merge",
        path=path,
    )


def remove_job(job: JobFolder) -> None:
    """Remove the folder of a job that is merged; ``job.json`` goes last."""
    import shutil

    if is_remote(job.folder):
        for file in (*job.folder.rglob("*.safetensors.json"), job.folder / _JOB):
            file.unlink(missing_ok=True)
        return
    merged = job.folder / "merged"
    with writing(job.folder):
        if job.staged().exists():  # else a killed run has begun to remove it
            shutil.rmtree(merged, ignore_errors=True)
            job.staged().rename(merged)
        for inner in (merged, job.folder / _REPORTS):
            shutil.rmtree(inner, ignore_errors=True)
        (job.folder / _JOB).unlink()
    try:
        job.folder.rmdir()
    except OSError as error:
        LOGGER.warning("%s: stays where it is, all is merged: %s", job.folder, error.strerror)
