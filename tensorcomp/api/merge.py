"""Merge the parts of a compressed folder, when all of them are there."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from tensorcomp._formatting import counted, listed
from tensorcomp.api.compress_result import CompressResult
from tensorcomp.container.compressed_folder import indexes_for_hosts
from tensorcomp.container.job_folder import (
    PARTIAL,
    JobFolder,
    partial_folder,
    read_job,
    read_json,
    remove_job,
)
from tensorcomp.container.model import default_output, open_model, output_names, restored_shards
from tensorcomp.container.output_folder import output_folder
from tensorcomp.container.reader import CompressedFile
from tensorcomp.errors import CheckpointError, VerificationError
from tensorcomp.io.files import atomic_file, link_file
from tensorcomp.io.locations import is_remote, location
from tensorcomp.pipeline.options import CompressOptions
from tensorcomp.pipeline.parts import deal, shard_tasks
from tensorcomp.pipeline.shard_task import finished_task
from tensorcomp.pipeline.summary import FileResult
from tensorcomp.planning.budgets import budget_of

_AT_ONCE = 16  # shards that are looked at


def merge(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    force: bool = False,
) -> CompressResult:
    """Make a folder of the parts that `compress` wrote; require all of them.

    Beside it ``NAME.tc.report.json`` says what became of each shard, where, and in what time: in
    it, it would come back with the model. A run that was killed is continued by the next one.

    Parameters
    ----------
    path : str or path-like
        The folder that was compressed in parts, its output, or the folder of its parts.
    out : str or path-like, optional
        The output that was given to `compress`; needed only if `path` is the input.
    force : bool
        Replace an existing output.

    Raises
    ------
    VerificationError
        If a shard is missing, or not of the source as it is now, or all together take more bytes
        than planned. Nothing is changed then.
    CheckpointError
        If there are no parts, or the output exists or cannot be written.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tensorcomp import compress, merge
    >>> Path("shards").mkdir()
    >>> shard = Path("model.safetensors").rename("shards/model.safetensors")
    >>> results = [compress("shards", part=(number, 2)) for number in range(2)]
    >>> merge("shards").path.name
    'shards.tc'
    """
    given = location(path)
    if given.name in ("", "..") and not is_remote(given):
        given = given.resolve()
    if given.name.endswith(PARTIAL) and out is None:
        target, source = given.with_name(given.name.removesuffix(PARTIAL)), None
    elif out is None and partial_folder(given).is_dir():
        target, source = given, None
    else:
        source = given if given.is_dir() else None
        target = location(out) if out is not None else default_output(given)
    job = read_job(target)
    if job is not None:
        return merge_job(job if source is None else replace(job, source=source), force=force)
    for merged in (target, given):
        if merged.is_dir() and _report(merged).is_file():
            return _merged(merged)
    raise CheckpointError(
        "has no parts to merge; compress it by tensorcomp compress FOLDER --part I/N first",
        path=given,
    )


def merge_job(job: JobFolder, *, force: bool) -> CompressResult:
    """Merge the parts of a job, as `merge` does."""
    begun = time.perf_counter()
    if not job.staged().exists():  # a run was killed that had merged them
        result = _merged(job.target)
    else:
        result = _merge(job, _checked(job), force=force or _is_merged(job))
        shards = [read_json(job.report(shard)) for shard in job.outputs]
        text = json.dumps({**result.to_dict(), "shards": shards}, indent=1)
        with atomic_file(_report(job.target), force=True) as file:
            file.write(f"{text}\n".encode())
    remove_job(job)
    return replace(result, seconds=time.perf_counter() - begun)


def _report(target: Path) -> Path:
    return target.with_name(f"{target.name}.report.json")


def paths_of(job: JobFolder) -> dict[Path, Path]:
    """Return what each shard of a job becomes."""
    return {Path(shard): Path(output) for shard, output in job.outputs.items()}


def _checked(job: JobFolder) -> dict[Path, FileResult]:
    """Return the results of all shards; require that they are there, and within the budget."""
    tasks = shard_tasks(job, {shard: {} for shard in job.outputs}, CompressOptions(), None)
    with ThreadPoolExecutor(_AT_ONCE) as pool:  # a store takes its time to answer
        found = dict(zip(job.outputs, pool.map(finished_task, tasks), strict=True))
    files = {shard: result for shard, result in found.items() if result is not None}
    lacking = found.keys() - files.keys()
    if lacking:
        parts = [] if job.parts is None else deal(job.sizes, job.parts)
        numbers = [f"{n}/{job.parts}" for n, own in enumerate(parts) if lacking & set(own)]
        again = f"part {', '.join(numbers)}" if numbers else "the same job"
        raise VerificationError(
            f"lacks {len(lacking):,} of {counted(len(found), 'shard')}, or has them of another "
            f"source: {listed(sorted(lacking))}; run {again} again",
            path=job.folder,
        )
    if job.budget:
        reports = [read_json(job.report(shard)) or {} for shard in found]
        plans = {str(report.get("mark")) for report in reports}
        if len(plans) > 1:
            raise VerificationError("has shards of several plans; run again", path=job.folder)
        given, total, weights = (
            sum(getattr(result, name) for result in files.values())
            for name in ("input_bytes", "output_bytes", "weights")
        )
        most = budget_of(job.budget).size(given, weights)
        if most is not None and total > most:
            raise VerificationError(
                f"expected {most:,} bytes at most, as planned, got {total - most:,} more; make a "
                f"plan of a smaller size, remove the folder, and begin again",
                path=job.folder,
            )
    return {Path(shard): result for shard, result in files.items()}


def _merge(job: JobFolder, files: dict[Path, FileResult], *, force: bool) -> CompressResult:
    """Make the output folder; the parts stay where they are, too."""
    model, outputs = open_model(job.source, compressed=False), paths_of(job)
    if differ := sorted(map(str, set(model.shards) ^ outputs.keys())):
        raise CheckpointError(
            f"has not the shards that it had when the first part began: {listed(differ)}; remove "
            f"{job.folder}, and begin again",
            path=job.source,
        )
    written = output_names(model, keep_names=job.keep_names)
    indexes = indexes_for_hosts(model, written)
    stays = is_remote(job.target)  # where it is
    with output_folder(model, job.target, written, indexes, force=force or stays) as partial:
        for shard, output in job.outputs.items() if not stays else ():
            link_file(job.staged(shard), partial / output)
    return CompressResult(job.target, files, 0.0, model.copied, outputs)


def _is_merged(job: JobFolder) -> bool:
    """Return whether a run that was killed has made the output folder of the parts."""
    pairs = ((job.staged(shard), job.target / output) for shard, output in job.outputs.items())
    return all(whole.exists() and part.samefile(whole) for part, whole in pairs)


def _merged(target: Path) -> CompressResult:
    """Return the result of a folder that is merged already."""
    model = open_model(target, compressed=True)
    restored = restored_shards(model)[0]
    files, outputs = {}, {}
    for shard in model.shards:
        outputs[restored[shard]] = shard
        with CompressedFile(model.file(shard)) as opened:
            files[restored[shard]] = FileResult.of(opened)
    return CompressResult(target, files, 0.0, model.copied, outputs)
