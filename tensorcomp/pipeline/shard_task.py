"""Compress a shard of a job, and report it; leave what is finished."""

from __future__ import annotations

import functools
import json
import socket
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import tensorcomp
from tensorcomp.container.job_folder import read_json
from tensorcomp.container.model import open_original
from tensorcomp.container.reader import CompressedFile
from tensorcomp.errors import (
    PARSING_ERRORS,
    CheckpointError,
    FormatError,
    MissingFileError,
    TensorcompError,
)
from tensorcomp.io.files import atomic_file, reading, writing
from tensorcomp.io.locations import RemotePath, is_remote
from tensorcomp.io.remote_file import version_of
from tensorcomp.pipeline.job import Shard, compress_shards
from tensorcomp.pipeline.options import CompressOptions
from tensorcomp.pipeline.summary import FileResult
from tensorcomp.progress import Progress


@dataclass(frozen=True)
class ShardTask:
    """Shard to compress, in any process that sees its paths.

    Parameters
    ----------
    source, output, report : Path
    keys : mapping of str to str
        Names of its tensors in a plan.
    options : CompressOptions
        A plan in it is of this shard alone.
    mark : mapping of str to str
        Digests of what all shards have in common: of other options or plans, a result is no good.
    nbytes : int
        Of the source, when the job was begun.
    """

    source: Path
    output: Path
    report: Path
    keys: Mapping[str, str]
    options: CompressOptions
    mark: Mapping[str, str] = field(default_factory=dict)
    nbytes: int = 0


def run_task(task: ShardTask, progress: Progress | None = None) -> tuple[FileResult, bool]:
    """Compress a shard unless it is; return the result, and whether it was.

    Raises
    ------
    CheckpointError
        If it cannot be read or written here.
    PlanError
        If its budget cannot be kept.
    """
    try:
        found = finished_task(task)
        return (_compress(task, progress or Progress()), False) if found is None else (found, True)
    except MissingFileError as error:
        message = f"{socket.gethostname()} has no such file; give a path that all workers see"
        raise MissingFileError(message, path=error.path) from error


def run_remotely(task: ShardTask) -> tuple[FileResult, bool]:
    """Run a task; raise what another try may mend as an `OSError`."""
    try:
        return run_task(task)
    except MissingFileError:
        raise
    except TensorcompError as error:
        if isinstance(error.__cause__, OSError):
            raise OSError(str(error)) from error
        raise


def finished_task(task: ShardTask) -> FileResult | None:
    """Return the result of a shard that is compressed as the task says."""
    report = read_json(task.report)
    if not report or report.get("source") != _state(task.source):
        return None
    try:
        if not task.mark.items() <= report["mark"].items():
            return None
        with CompressedFile(task.output) as file:
            result = FileResult.of(file, frozenset(report["refused"]))
        json.dumps(report, allow_nan=False)  # which the report of all is to hold
    except (CheckpointError, FormatError, *PARSING_ERRORS):
        return None
    return result if result.output_bytes == report.get("output_bytes") else None


def _compress(task: ShardTask, progress: Progress) -> FileResult:
    """Compress a shard, and write its report when it is whole."""
    begun, state = time.perf_counter(), _state(task.source)
    for path in (task.output, task.report):
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
    nbytes = state["bytes"] if task.options.in_one_go else None
    create = functools.partial(atomic_file, task.output, force=True, nbytes=nbytes)
    with open_original(task.source) as source:
        shard = Shard(lambda: nullcontext(source), create, task.keys)
        (result,) = compress_shards([shard], task.options, progress, whole=False)
    if _state(task.source) != state:
        raise CheckpointError("was changed while it was read; run again", path=task.source)
    figures = {
        "file": task.output.name,
        "input_bytes": result.input_bytes,
        "output_bytes": result.output_bytes,
        "seconds": round(time.perf_counter() - begun, 3),
        "host": socket.gethostname(),
        "tensorcomp": tensorcomp.__version__,
        "refused": sorted(result.refused),
        "source": state,
        "mark": dict(task.mark),
    }
    with atomic_file(task.report, force=True) as file:
        file.write(f"{json.dumps(figures, indent=1)}\n".encode())
    return result


def _state(path: Path) -> dict[str, Any]:
    """Return what tells that a source is another one now."""
    with reading(path):
        if is_remote(path):
            info = cast("RemotePath", path).info()
            return {"bytes": info["size"], "version": version_of(info)}
        status = path.stat()
        return {"bytes": status.st_size, "mtime_ns": status.st_mtime_ns}
