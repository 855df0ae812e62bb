"""Divide the compression of a folder into tasks of one shard each."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import xxhash

import tensorcomp
from tensorcomp.container.job_folder import JobFolder
from tensorcomp.container.model import open_model, open_original, output_names
from tensorcomp.errors import OptionError
from tensorcomp.io.files import file_size, reading
from tensorcomp.io.locations import is_remote, location
from tensorcomp.pipeline.options import CompressOptions, load_plan
from tensorcomp.pipeline.shard_task import ShardTask
from tensorcomp.planning.plan import Plan, check_names, plan_to_json

_BLOCK = 1 << 20
_FILES = ("importance", "plan", "profile", "statistics")


def parse_part(part: str | tuple[int, int] | None) -> tuple[int, int]:
    """Return the number of a part, and of how many.

    Raises
    ------
    OptionError
        If it is none of 0/N to (N − 1)/N.
    """
    try:
        words = part.split("/") if isinstance(part, str) else part
        number, count = (int(word) for word in words or ())
    except (TypeError, ValueError):
        raise OptionError(f"expected a part such as 0/8, got {part!r}") from None
    if not 0 <= number < count:
        raise OptionError(
            f"expected a part from 0/{max(count, 1)} to {max(count, 1) - 1}/{max(count, 1)}, got "
            f"{number}/{count}: parts count from 0, as the tasks of --array=0-7 do"
        )
    return number, count


def deal(sizes: Mapping[str, int], count: int) -> list[list[str]]:
    """Deal shards to parts: the largest first, to the one that has least.

    Parts beyond the number of shards have none, and are left out.
    """
    count = min(count, max(len(sizes), 1))
    parts: list[list[str]] = [[] for _ in range(count)]
    loads = [0] * count
    for shard in sorted(sizes, key=lambda shard: (-sizes[shard], shard)):
        least = loads.index(min(loads))
        parts[least].append(shard)
        loads[least] += sizes[shard]
    return parts


def make_job(
    source: Path,
    target: Path,
    options: CompressOptions,
    *,
    keep_names: bool = False,
    parts: int | None = None,
) -> JobFolder:
    """Return the job of compressing a folder; heads of its files are read.

    Raises
    ------
    CheckpointError
        If the folder holds no checkpoint, or is damaged.
    PlanError
        If a plan is not for its tensors, or statistics are of another model.
    """
    model = open_model(source, compressed=False)
    outputs = output_names(model, keep_names=keep_names)
    plan = None if options.plan is None else load_plan(options.plan)
    tensors = {}
    for shard in model.shards if needs_names(options) else ():
        with model.open(shard) as opened:
            tensors[shard.as_posix()] = {info.name: info.shape for info in opened.tensors}
    counts = Counter(name for own in tensors.values() for name in own)
    repeated = sorted(name for name, count in counts.items() if count > 1)
    shapes = {
        _key(shard, name, repeated): shape
        for shard, own in tensors.items()
        for name, shape in own.items()
    }
    if plan is not None:
        check_names(plan, list(shapes), "the plan")
    budget = options.planner().budget if plan is None else plan.budget
    return JobFolder(
        target,
        source,
        job_options(options, keep_names=keep_names),
        {shard.as_posix(): outputs[shard].as_posix() for shard in model.shards},
        {shard.as_posix(): file_size(model.file(shard)) for shard in model.shards},
        keep_names,
        parts,
        repeated,
        {key: shapes[key] for key in options.calibrated(shapes)},
        budget.given() if budget.is_size else {},
    )


def needs_names(options: CompressOptions) -> bool:
    """Return whether it matters what tensors are called in a plan."""
    return options.plan is not None or not (options.is_lossless or options.planner().is_lossless)


def job_options(options: CompressOptions, *, keep_names: bool) -> dict[str, str]:
    """Return what decides on the bytes of a job, as text."""
    asked = {
        item.name: getattr(options, item.name) for item in fields(options) if item.name != "threads"
    }
    usual = vars(CompressOptions())
    given = {name: _text(name, value) for name, value in asked.items() if value != usual[name]}
    names = {"keep_names": "True"} if keep_names else {}
    return {**given, **names, "tensorcomp": tensorcomp.__version__}


def _text(name: str, value: Any) -> str:
    is_path = isinstance(value, (str, os.PathLike)) or is_remote(value)
    if not is_path or name not in _FILES or (name == "profile" and location(value).suffix == ""):
        return plan_to_json(value, {}) if isinstance(value, Plan) else repr(value)
    path, digest = location(value), xxhash.xxh3_128()
    with reading(path), path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return f"a file of digest {digest.hexdigest()}"


def _mark(job: JobFolder, plan: Plan | None) -> dict[str, str]:
    """Return digests of what the shards of a job have in common."""
    options = json.dumps(job.options, sort_keys=True)
    texts = {"options": options} | ({} if plan is None else {"plan": plan_to_json(plan, {})})
    return {name: xxhash.xxh3_128(text.encode()).hexdigest() for name, text in texts.items()}


def keys_of(job: JobFolder, shard: str) -> dict[str, str]:
    """Return the names in a plan of a shard's tensors."""
    with open_original(job.source / shard) as opened:
        return {info.name: _key(shard, info.name, job.repeated) for info in opened.tensors}


def _key(shard: str, name: str, repeated: Collection[str]) -> str:
    return f"{shard}:{name}" if name in repeated else name  # as `Model.keys` does


def shard_tasks(
    job: JobFolder,
    keys: Mapping[str, Mapping[str, str]],
    options: CompressOptions,
    plan: Plan | None,
) -> list[ShardTask]:
    """Return the tasks of shards under a plan, or without one.

    Parameters
    ----------
    job : JobFolder
    keys : mapping of str to mapping of str to str
        For each shard the names in the plan of its tensors.
    options : CompressOptions
        Profiles and budgets in it have led to the plan.
    plan : Plan or None
        With its statistics. What they are of a tensor, workers read themselves.
    """
    mark = _mark(job, plan)

    def task(shard: str, names: Mapping[str, str]) -> ShardTask:
        own = options
        if plan is not None:
            known = {key: plan.tensors[key] for key in names.values() if key in plan.tensors}
            plain = {key: replace(item, calibrated=None) for key, item in known.items()}
            by_statistics = any(item.by_statistics for item in plain.values())
            own = replace(
                options,
                effort=options.effort or plan.effort,
                plan=Plan(plain, effort=plan.effort),
                statistics=options.statistics if by_statistics else None,
            )
        paths = job.source / shard, job.staged(shard), job.report(shard)
        return ShardTask(*paths, names, own, mark, job.sizes[shard])

    return [task(shard, names) for shard, names in keys.items()]
