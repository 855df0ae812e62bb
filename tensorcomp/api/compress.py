"""The verb compress, from files and folders to files and folders.

A folder of shards becomes a folder of compressed shards beside its other files, unchanged.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from tensorcomp._names import shown
from tensorcomp._threads import available_threads
from tensorcomp.checkpoints.base import Source
from tensorcomp.checkpoints.folder import copy_others, scan_folder
from tensorcomp.container.paths import (
    compressed_name,
    default_output,
    open_original,
    refuse_itself,
    refuse_overlap,
)
from tensorcomp.errors import PlanError, PruningError
from tensorcomp.io.atomic import atomic_file, atomic_folder, refuse_existing
from tensorcomp.pipeline.job import Pipeline
from tensorcomp.pipeline.model_files import Opener, draft_files, sources_of, tensor_keys
from tensorcomp.pipeline.result import Report
from tensorcomp.pipeline.target_size import write_obeying, write_within
from tensorcomp.planning.checkpoint_plan import CheckpointPlan, check_names, plan_from_json
from tensorcomp.progress import Progress

if TYPE_CHECKING:
    from tensorcomp.planning.budgets import Budget
    from tensorcomp.planning.profiles import Profile
    from tensorcomp.planning.rules import Rule
    from tensorcomp.selection.request import Pruning


@dataclass(frozen=True)
class Compressed:
    """What `compress` wrote.

    Parameters
    ----------
    path : Path
        The file or folder.
    reports : mapping of Path to Report
        One for each checkpoint file, by its path in the input folder, or by its name.
    """

    path: Path
    reports: dict[Path, Report]


def compress(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    effort: str | None = None,
    profile: str | Profile | None = None,
    budget: Budget | None = None,
    codecs: Iterable[str | Rule] = (),
    bounds: Mapping[str, Budget] | None = None,
    importance: str | os.PathLike[str] | Mapping[str, float] | None = None,
    plan: str | os.PathLike[str] | CheckpointPlan | None = None,
    prune: Pruning | None = None,
    threads: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Compressed:
    """Compress a checkpoint file, or a folder of shards; without losing a bit, unless told to.

    Parameters
    ----------
    path : str or path-like
        A safetensors file, a torch file, an ``.npz`` archive, or a folder of such files.
    out : str or path-like, optional
        By default beside the input: ``model.tc.safetensors`` for ``model.safetensors``,
        ``model.pt.tc.safetensors`` for ``model.pt``, ``NAME.tc`` for a folder.
    effort : {"balanced", "fast", "max"}, optional
        What size is worth in time; by default the profile's, or balanced.
    profile : str or Profile, optional
        ``lossless``, ``transformer``, ``cnn``, ``mlp``, ``memory``, ``speed``, or the path of a
        TOML file. By default ``lossless``; ``transformer`` where a budget is given and no tree.
    budget : Budget, optional
        The largest error of each tensor, or the size of the file; by default the profile's.
    codecs : iterable of str or Rule
        ``SELECTOR=TREE``: trees for tensors by role, by name or for ``all``.
    bounds : mapping of str to Budget, optional
        Bounds of single tensors, by name, in place of the budget.
    importance : path or mapping of str to float, optional
        What a unit of squared error costs in each tensor, under a size: a safetensors file of one
        positive array or scalar a tensor, of which the mean counts.
    plan : path or CheckpointPlan, optional
        What is to become of each tensor, as `plan` returns it; in place of all the above.
    prune : Pruning, optional
        Which weights are set to zero before anything is encoded; none by default. Bounds then hold
        for the others.
    threads : int, optional
        All available processors by default. The bytes do not depend on it.
    force : bool
        Replace an existing output.
    progress : Progress, optional

    Raises
    ------
    CheckpointError
        If the input cannot be read, or the output exists or cannot be written. The output is then
        as it was.
    PlanError
        If the budget cannot be kept, or what is asked for does not go together.
    PruningError
        If weights cannot be pruned as asked. Nothing is written then.
    """
    source = Path(path)
    obeyed = None
    if plan is not None:
        if profile is not None or budget is not None or tuple(codecs) or bounds or importance:
            raise PlanError("a plan says everything: give no profile, budget or trees beside it")
        if prune is not None and prune.target_size is not None:
            raise PruningError("a target size is searched for without a plan; give a sparsity")
        obeyed = load_plan(plan)
        if obeyed.pruned and prune is None:
            raise PlanError(
                f"the plan is for weights that are pruned first, by {shown(obeyed.pruned)}: prune "
                "them as for the plan (--prune …), or make a plan without"
            )
        pipeline = Pipeline(effort or obeyed.effort, threads or available_threads(), prune=prune)
    else:
        pipeline = Pipeline.asked(
            threads,
            prune,
            effort=effort,
            profile=profile,
            budget=budget,
            codecs=codecs,
            bounds=bounds,
            importance=importance,
        )
    target = Path(out) if out is not None else default_output(source)
    if source.is_dir():
        return _compress_folder(source, target, pipeline, progress, obeyed, force=force)
    refuse_itself(source, target)
    refuse_existing(target, force=force)
    with open_original(source) as checkpoint:
        report = _compress_source(checkpoint, target, pipeline, progress, obeyed, force=force)
    return Compressed(target, {Path(source.name): report})


def load_plan(plan: str | os.PathLike[str] | CheckpointPlan) -> CheckpointPlan:
    """Return a plan, read from a file if need be.

    Raises
    ------
    PlanError
        If the file cannot be read or is no plan.
    """
    if isinstance(plan, CheckpointPlan):
        return plan
    try:
        text = Path(plan).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"{plan}: cannot be read: {getattr(error, 'strerror', error)}") from error
    return plan_from_json(text, str(plan))


def _compress_source(
    source: Source,
    target: Path,
    pipeline: Pipeline,
    progress: Progress | None,
    plan: CheckpointPlan | None,
    *,
    force: bool,
) -> Report:
    pruned = pipeline.pruned(source)
    with atomic_file(target, force=force) as file:
        return pipeline.write(pruned, file, progress, plan)


def _compress_folder(
    source: Path,
    target: Path,
    pipeline: Pipeline,
    progress: Progress | None,
    plan: CheckpointPlan | None,
    *,
    force: bool,
) -> Compressed:
    folder = scan_folder(source)
    refuse_overlap(source, target)
    paths = {weights: source / weights for weights in folder.weights}
    written = (weights.with_name(compressed_name(weights.name)) for weights in folder.weights)
    names = {PurePath(name) for name in (*folder.others, *written)}
    with contextlib.ExitStack() as stack:
        partial = stack.enter_context(atomic_folder(target, names, force=force))
        copy_others(folder, partial)
        keys = tensor_keys(source, paths.values())
        opened = stack.enter_context(sources_of(keys, pipeline))
        pipeline = replace(pipeline, prune=None)

        def write(plan: CheckpointPlan | None) -> list[Report]:
            if progress is not None:
                progress.begin_folder(sum(path.stat().st_size for path in paths.values()))
            return [
                _compress_shard(
                    opened(path),
                    partial / weights,
                    pipeline,
                    progress,
                    plan and plan.of(keys[path]),
                )
                for weights, path in paths.items()
            ]

        reports = _write_folder(pipeline, keys, opened, plan, write)
    return Compressed(target, dict(zip(paths, reports, strict=True)))


def _write_folder(
    pipeline: Pipeline,
    keys: Mapping[Path, Mapping[str, str]],
    opened: Opener,
    plan: CheckpointPlan | None,
    write: Callable[[CheckpointPlan | None], list[Report]],
) -> list[Report]:
    names = list(keys.values())
    if plan is not None:
        check_names(plan, [key for file in names for key in file.values()], "the plan")
        return write_obeying(plan, names, write)
    if pipeline.planner is None or pipeline.planner.is_lossless:
        return write(None)
    draft, nbytes = draft_files(pipeline, pipeline.planner, keys, opened)
    return write_within(draft, draft.most_bytes(nbytes), names, write)


def _compress_shard(
    source: AbstractContextManager[Source],
    target: Path,
    pipeline: Pipeline,
    progress: Progress | None,
    plan: CheckpointPlan | None,
) -> Report:
    written = target.with_name(compressed_name(target.name))
    written.parent.mkdir(parents=True, exist_ok=True)
    with source as checkpoint:
        return _compress_source(checkpoint, written, pipeline, progress, plan, force=True)
