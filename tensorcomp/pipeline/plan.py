"""Plan the tensors of a source from samples, before anything is encoded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tensorcomp._threads import Workers
from tensorcomp.checkpoints.base import Checkpoint
from tensorcomp.container.chunk_grid import chunk_grid
from tensorcomp.container.writer import header_bytes
from tensorcomp.pipeline.bundle import bundled
from tensorcomp.pipeline.header_estimate import (
    bundle_records,
    draft_manifest,
    likely_manifest,
    tensor_records,
)
from tensorcomp.pipeline.options import CompressOptions
from tensorcomp.pipeline.prepare import are_equal, copied_bytes

if TYPE_CHECKING:
    from tensorcomp.planning.allocation_problem import AllocationProblem
    from tensorcomp.planning.planner import Planner, Tensor


def draft_source(
    source: Checkpoint, planner: Planner, options: CompressOptions
) -> AllocationProblem:
    """Return the allocation problem of a source, from samples.

    Parameters
    ----------
    source : Checkpoint
        After pruning.
    planner : Planner
    options : CompressOptions

    Raises
    ------
    PlanError
        If a tree needs a budget that is not there, or a tensor's importance is not given.
    """
    manifest = draft_manifest(source, tensor_records(source), options.chunk_elements)

    def tensors() -> Iterator[Tensor]:
        from tensorcomp.planning.planner import Tensor

        for info in source.tensors:
            grid = chunk_grid(info.dtype, info.shape, info.nbytes, options.chunk_elements)
            record = manifest.tensors[info.name]
            data = source.read(info.name)
            likely = record.same_as
            same = likely is not None and are_equal(source, likely, info.name, data)
            array = data.view(grid.dtype).reshape(grid.shape)
            copied = copied_bytes(source, info)
            yield Tensor(info, record.role, array, likely if same else None, copied)

    with Workers(options.thread_count) as workers:
        draft = planner.plan(tensors(), workers, header_bytes(manifest))
    plan = draft.cheapest([info.name for info in source.tensors])
    work = bundled(source, plan, options.chunk_elements)
    likely = likely_manifest(work, tensor_records(source, work), bundle_records(work))
    return replace(draft, overhead=header_bytes(likely))
