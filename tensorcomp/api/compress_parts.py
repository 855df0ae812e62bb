"""Compress a folder in parts: one of them here, or all on an executor."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path

from tensorcomp._formatting import listed
from tensorcomp.api.compress_result import CompressResult
from tensorcomp.api.merge import merge_job, paths_of
from tensorcomp.container.job_folder import JobFolder, begin_job
from tensorcomp.container.model import base_paths, default_output, open_original
from tensorcomp.container.output_folder import refuse_nested
from tensorcomp.errors import CheckpointError, PlanError
from tensorcomp.io.files import atomic_file, refuse_unless_forced
from tensorcomp.io.locations import is_remote, location
from tensorcomp.pipeline.job import Shard, compress_shards
from tensorcomp.pipeline.options import CompressOptions, load_plan
from tensorcomp.pipeline.parts import (
    deal,
    job_options,
    keys_of,
    make_job,
    needs_names,
    parse_part,
    shard_tasks,
)
from tensorcomp.pipeline.run_tasks import run_tasks
from tensorcomp.pipeline.shard_task import ShardTask, run_task
from tensorcomp.pipeline.summary import FileResult
from tensorcomp.planning.plan import Plan
from tensorcomp.progress import Progress


@dataclass(frozen=True)
class PartsRequest:
    """Folder to compress in parts, and how.

    Parameters
    ----------
    source : Path
    out : Path or None
    options : CompressOptions
    progress : Progress
    force, keep_names : bool
    """

    source: Path
    out: Path | None
    options: CompressOptions
    progress: Progress
    force: bool = False
    keep_names: bool = False

    def begin(self, parts: int | None = None, *, is_first: bool = True) -> JobFolder:
        """Return the job, which another process may have begun.

        Without a number of parts its paths are absolute, since others work on it.

        Raises
        ------
        CheckpointError
            If the output exists, or the job was begun with other options.
        PlanError
            If shards cannot be compressed one without the others.
        """
        if self.options.prune is not None:
            raise PlanError("pruning sees a model as a whole: expected no parts nor executor")
        for what in ("statistics", "base"):
            given = getattr(self.options, what)
            if not (isinstance(given, (str, os.PathLike, type(None))) or is_remote(given)):
                raise PlanError(f"expected the path of {what}, which all workers read; save it")
        source = _absolute(self.source)
        target = self.out or default_output(source)
        target = _absolute(target) if parts is None else target
        options, names = self.options, self.keep_names

        def make() -> JobFolder:
            if not source.is_dir():
                raise CheckpointError("expected a folder to compress in parts", path=self.source)
            refuse_nested(source, target)
            refuse_unless_forced(target, force=self.force)
            return make_job(source, target, options, keep_names=names, parts=parts)

        job = begin_job(target, make, is_first=is_first)
        job = replace(job, source=self.source if parts else source)
        known, asked = job.options, job_options(options, keep_names=names)
        if known != asked:
            differ = sorted(n for n in {**known, **asked} if known.get(n) != asked.get(n))
            raise PlanError(
                f"was begun with another {listed(differ)}; give the same, or remove the folder",
                path=job.folder,
            )
        return job


def compress_part(request: PartsRequest, part: str | tuple[int, int] | None) -> CompressResult:
    """Compress the shards of one part, as `compress` does."""
    begun = time.perf_counter()
    number, count = parse_part(part)
    options = request.options
    if options.plan is None and (options.statistics or options.planner().budget.is_size):
        raise PlanError(
            "a size, as statistics, is of all shards together: make a plan first, by tensorcomp "
            "plan FOLDER … -o plan.json, and give plan=…"
        )
    job = request.begin(count, is_first=number == 0)
    own = next(iter(deal(job.sizes, count)[number:]), [])
    plan = None if options.plan is None else load_plan(options.plan)
    if plan is not None and plan.pruned:
        raise PlanError("pruning sees a model as a whole: expected a plan without, got one with")
    if plan is not None and job.measured:
        plan = plan.with_statistics(options.calibrated(job.measured))
    request.progress.begin_folder(sum(job.sizes[shard] for shard in own))
    tasks = shard_tasks(job, _keys(job, own, options), options, plan)
    done = [run_task(task, request.progress) for task in tasks]
    files = {Path(shard): result for shard, (result, _) in zip(own, done, strict=True)}
    seconds, reused = time.perf_counter() - begun, sum(was_done for _, was_done in done)
    return CompressResult(job.folder, files, seconds, None, paths_of(job), reused)


def compress_on(request: PartsRequest, executor: Executor) -> CompressResult:
    """Compress all shards on an executor, and merge them, as `compress` does."""
    begun = time.perf_counter()
    job, progress, base = request.begin(), request.progress, request.options.base
    options = replace(request.options, threads=request.options.threads or 1)
    keys = _keys(job, job.outputs, options)
    reused = 0

    def spread(plan: Plan | None, effort: str) -> list[FileResult]:
        nonlocal reused
        own = CompressOptions(
            effort=effort,
            plan=plan,
            statistics=None if plan is None else options.statistics,
            base=_absolute(location(base)) if isinstance(base, (str, os.PathLike)) else base,
            bases=tuple(map(_absolute, base_paths(options.bases))),
            threads=options.threads,
            chunk_elements=options.chunk_elements,
        )
        for size in job.sizes.values():
            progress.begin(1, size)

        def advance(task: ShardTask) -> None:
            progress.advance(str(task.source), task.nbytes)

        results = run_tasks(executor, shard_tasks(job, keys, own, plan), advance)
        reused = sum(was_done for _, was_done in results)
        return [result for result, _ in results]

    shards = []
    for shard, names in keys.items():
        create = functools.partial(atomic_file, job.staged(shard), force=True)
        opened = functools.partial(open_original, job.source / shard)
        shards.append(Shard(opened, create, names))
    compress_shards(shards, options, progress, sum(job.sizes.values()), spread=spread)
    merged = merge_job(job, force=request.force)
    return replace(merged, seconds=time.perf_counter() - begun, reused=reused)


def _absolute(path: Path) -> Path:
    """Return a path as other processes see it; its links stay as they are."""
    return path if is_remote(path) else Path(os.path.abspath(path))  # noqa: PTH100


def _keys(
    job: JobFolder, shards: Iterable[str], options: CompressOptions
) -> dict[str, dict[str, str]]:
    """Return for each shard the names of its tensors in a plan; none if that has no meaning."""
    needed = needs_names(options)
    return {shard: keys_of(job, shard) if needed else {} for shard in shards}
