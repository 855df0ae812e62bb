"""Compress a model: prune, plan, bundle, encode, write, until in budget."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tensorcomp._formatting import listed, printable, shown
from tensorcomp._log import LOGGER
from tensorcomp._threads import Workers
from tensorcomp.checkpoints.base import Checkpoint
from tensorcomp.checkpoints.safetensors.file import SafetensorsFile
from tensorcomp.container.writer import Output, SizeOnly
from tensorcomp.errors import PlanError, PruningError
from tensorcomp.io.s3_upload import PartIsSent
from tensorcomp.pipeline.bundle import bundled
from tensorcomp.pipeline.options import CompressOptions, load_plan
from tensorcomp.pipeline.plan import source_problem
from tensorcomp.pipeline.references import NO_REFERENCES, match_tensors, opened_bases
from tensorcomp.pipeline.summary import FileResult
from tensorcomp.pipeline.target_size import write_to_budget, write_with_plan
from tensorcomp.pipeline.write import write_file
from tensorcomp.planning.plan import Plan, check_names
from tensorcomp.progress import Progress
from tensorcomp.selection.stored.pruned_checkpoint import PrunedCheckpoint

if TYPE_CHECKING:
    from tensorcomp.planning.allocation import AllocationProblem
    from tensorcomp.planning.calibrated import Calibrated
    from tensorcomp.planning.planner import Planner


Spread: TypeAlias = "Callable[[Plan | None, str], list[FileResult]]"


class Shard(NamedTuple):
    """File of a model: how to open it for reading, and its output.

    Parameters
    ----------
    open : callable
        Returns a context manager of the file's tensors.
    create : callable
        Returns a context manager of the file that is written: seekable and readable.
    keys : mapping of str to str
        Names of its tensors in a plan: each occurs once in the model.
    """

    open: Callable[[], AbstractContextManager[Checkpoint]]
    create: Callable[[], AbstractContextManager[Output]]
    keys: Mapping[str, str]


def _opened(source: Checkpoint) -> Callable[[], AbstractContextManager[Checkpoint]]:
    return lambda: nullcontext(source)


def compress_source(
    source: Checkpoint,
    file: Output,
    options: CompressOptions | None = None,
    progress: Progress | None = None,
) -> FileResult:
    """Compress an open source into an open file, as `compress_shards` does."""
    keys = {info.name: info.name for info in source.tensors}
    shard = Shard(_opened(source), lambda: nullcontext(file), keys)
    return compress_shards([shard], options or CompressOptions(), progress or Progress())[0]


def compress_shards(
    shards: Sequence[Shard],
    options: CompressOptions,
    progress: Progress,
    model_bytes: int | None = None,
    *,
    whole: bool = True,
    spread: Spread | None = None,
) -> list[FileResult]:
    """Compress the shards of a model.

    Parameters
    ----------
    shards : sequence of Shard
    options : CompressOptions
    progress : Progress
    model_bytes : int, optional
        Of all shards; reported where the model is a folder.
    whole : bool
        Whether these are all the shards: rules may be for others only.
    spread : callable, optional
        Writes all files under a plan, or without one, at an effort, in place of this process.

    Raises
    ------
    PlanError
        If the budget cannot be kept, or the plan is not for these tensors.
    PruningError
        If the model cannot be pruned as asked.
    """
    calibrated = calibrated_tensors(shards, options)
    plan = None if options.plan is None else _checked_plan(options, shards, calibrated)
    planner = None if plan is not None or options.is_lossless else options.planner()
    chosen = plan or planner
    if options.base is not None and planner is not None and planner.budget.is_size:
        raise PlanError(f"expected a bound beside a base, got {planner.budget}; give max_rel_l2")
    effort = options.effort or (chosen.effort if chosen is not None else "balanced")

    def write(plan: Plan | None) -> list[FileResult]:
        plan = plan and plan.with_statistics(calibrated)
        if model_bytes is not None:
            progress.begin_folder(model_bytes)
        if spread is not None:
            return spread(plan, effort)
        return [write_shard(shard, plan and plan.of(shard.keys)) for shard in pruned]

    def write_shard(shard: Shard, plan: Plan | None) -> FileResult:
        with shard.create() as file, shard.open() as source, Workers(options.thread_count) as pool:
            if isinstance(source, SafetensorsFile):
                source.read_ahead()
            references = match_tensors(source, bases) if bases else NO_REFERENCES
            if bases and not references.matches:
                where = printable(str(source.path))
                LOGGER.warning("%s: the base has none of its tensors; coded without it", where)
            work = bundled(source, plan, options.chunk_elements, references)
            work = replace(work, plan_given=options.plan_given)
            try:
                result = write_file(work, file, progress, pool, effort)
            except PartIsSent:  # what has no room before what was sent is written once more
                result = write_file(work, file, progress, pool, effort)
            return result._replace(unpruned=getattr(source, "unpruned", {}))

    keys = [shard.keys for shard in shards]
    opened = nullcontext(()) if options.base is None else opened_bases(options.base, options.bases)
    with opened as bases, pruned_shards(shards, options, planner) as pruned:
        if plan is not None:
            return write_with_plan(plan, keys, write)
        if planner is None or planner.is_lossless:
            return write(None)
        problem, nbytes = shards_problem(pruned, options, planner, calibrated, whole=whole)
        most = problem.max_bytes(nbytes)
        if most is None:
            return write(problem.allocate(None, [key for names in keys for key in names.values()]))
        return write_to_budget(problem, most, keys, write)


def calibrated_tensors(
    shards: Sequence[Shard], options: CompressOptions
) -> Mapping[str, Calibrated]:
    """Return the statistics of tensors, by their names in a plan, checked.

    Raises
    ------
    PlanError, CheckpointError
        If they are of another model, or damaged.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for shard in shards if options.statistics is not None else ():
        with shard.open() as source:
            shapes |= {shard.keys[info.name]: info.shape for info in source.tensors}
    found = options.calibrated(shapes)
    for shard in shards if found else ():
        with shard.open() as opened:
            source = opened.original if isinstance(opened, PrunedCheckpoint) else opened
            for info in source.tensors:
                own = found.get(shard.keys[info.name])
                if own is not None:
                    own.check_data(info, source.read(info.name))
    return found


def _checked_plan(
    options: CompressOptions, shards: Sequence[Shard], calibrated: Collection[str]
) -> Plan:
    """Load the given plan and check that it is for these tensors."""
    assert options.plan is not None
    plan = load_plan(options.plan)
    if plan.pruned and options.prune is None:
        raise PlanError(
            f"expected weights that are pruned first, by {shown(plan.pruned)}, as the plan says; "
            "prune them so, or make a plan without pruning"
        )
    check_names(plan, [key for shard in shards for key in shard.keys.values()], "the plan")
    planned = (name for name, item in plan.tensors.items() if item.by_statistics)
    lacking = [name for name in planned if name not in calibrated]
    if lacking:
        raise PlanError(
            f"expected the statistics that the plan was made with, got none of {listed(lacking)}; "
            "give statistics=…"
        )
    return plan


@contextlib.contextmanager
def pruned_shards(
    shards: Sequence[Shard], options: CompressOptions, planner: Planner | None
) -> Iterator[Sequence[Shard]]:
    """Prune the shards together and yield views of them.

    All of them stay open then: a model is pruned as a whole.

    Raises
    ------
    PruningError
        If the model cannot be pruned as asked.
    """
    if options.prune is None:
        yield shards
        return
    if options.prune.target_size is not None and planner and planner.budget.is_size:
        raise PruningError("expected a size of pruning or budget, got both; give one of them")
    from tensorcomp.selection.stored.select import pruned_sources  # and all scores

    alone = replace(options, prune=None)

    def file_size(sources: Sequence[Checkpoint]) -> int:
        return sum(compress_source(s, SizeOnly(), alone).output_bytes for s in sources)

    with contextlib.ExitStack() as stack:
        sources = [stack.enter_context(shard.open()) for shard in shards]
        keys = [shard.keys for shard in shards]
        pruned = pruned_sources(
            sources, options.prune, keys, file_size=file_size, threads=options.thread_count
        )
        yield [
            shard._replace(open=_opened(source))
            for shard, source in zip(shards, pruned, strict=True)
        ]


def shards_problem(
    shards: Sequence[Shard],
    options: CompressOptions,
    planner: Planner,
    calibrated: Mapping[str, Calibrated],
    *,
    whole: bool = True,
) -> tuple[AllocationProblem, int]:
    """Return the allocation problem of all shards, and their bytes.

    Raises
    ------
    PlanError
        If what was asked for is not for these tensors.
    """
    from tensorcomp.planning.allocation import AllocationProblem

    problem, nbytes = AllocationProblem(planner.budget, planner.effort), 0
    for shard in shards:
        with shard.open() as source:
            own = {name: calibrated[key] for name, key in shard.keys.items() if key in calibrated}
            found = source_problem(source, replace(planner, calibrated=own), options)
            problem.add(found, shard.keys)
            nbytes += source.nbytes
    problem.balance()
    if whole:
        planner.check_used(problem)
    return problem, nbytes
