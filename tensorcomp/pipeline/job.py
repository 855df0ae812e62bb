"""The main job, compress: prune → plan → bundle → write, until the file keeps its budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tensorcomp._threads import Workers, available_threads
from tensorcomp.checkpoints.base import Source
from tensorcomp.container.chunk_grid import CHUNK_ELEMENTS, MAX_CHUNK_ELEMENTS, chunk_grid
from tensorcomp.container.writer import Output, SizeOnly, header_bytes
from tensorcomp.errors import PruningError
from tensorcomp.pipeline.bundle import bundled
from tensorcomp.pipeline.encode_jobs import are_equal, copied_bytes
from tensorcomp.pipeline.header_estimate import (
    bundle_records,
    draft_manifest,
    likely_manifest,
    tensor_records,
)
from tensorcomp.pipeline.result import Report
from tensorcomp.pipeline.target_size import write_obeying, write_within
from tensorcomp.pipeline.write import write_file
from tensorcomp.planning.checkpoint_plan import CheckpointPlan, TensorPlan, check_names
from tensorcomp.planning.lossless import EFFORTS
from tensorcomp.progress import Progress
from tensorcomp.selection.stored.pruned_checkpoint import PrunedSource

if TYPE_CHECKING:
    from tensorcomp.planning.allocation_problem import Draft
    from tensorcomp.planning.planner import Planner
    from tensorcomp.selection.request import Pruning


@dataclass(frozen=True)
class Pipeline:
    """How to compress: the object behind ``tensorcomp compress``.

    Parameters
    ----------
    effort : {"balanced", "fast", "max"}
        What size is worth in time. ``fast`` decodes fastest, ``max`` may take five times as long.
    threads : int
        Threads that encode, at least 1. The bytes written do not depend on it.
    planner : Planner, optional
        What may be lost, and where; nothing by default.
    chunk_elements : int
        Elements of a chunk at most: what a slice must decode, and what a thread holds.
    prune : Pruning, optional
        What is set to zero before anything is encoded; nothing by default.

    Raises
    ------
    ValueError
        If a field is out of range.
    """

    effort: str = "balanced"
    threads: int = 1
    planner: Planner | None = None
    chunk_elements: int = field(default=CHUNK_ELEMENTS, repr=False)
    prune: Pruning | None = None

    def __post_init__(self) -> None:
        if self.effort not in EFFORTS:
            raise ValueError(f"effort is one of {', '.join(EFFORTS)}; got {self.effort!r}")
        if self.threads < 1:
            raise ValueError(f"threads is at least 1; got {self.threads}")
        if not 1 <= self.chunk_elements <= MAX_CHUNK_ELEMENTS:
            raise ValueError(
                f"chunk_elements is from 1 to {MAX_CHUNK_ELEMENTS}; got {self.chunk_elements}"
            )

    @classmethod
    def of(cls, planner: Planner, threads: int | None, prune: Pruning | None = None) -> Pipeline:
        """Return the pipeline of a planner, on all available processors by default."""
        return cls(planner.effort, threads or available_threads(), planner, prune=prune)

    @classmethod
    def asked(
        cls, threads: int | None, prune: Pruning | None, *, effort: str | None, **asked: Any
    ) -> Pipeline:
        """Return the pipeline of what a user asks for, as `make_planner` takes it.

        Where that is nothing it has no planner, of which the modules need not be imported either.
        """
        if all(value in (None, ()) for value in asked.values()):
            return cls(effort or "balanced", threads or available_threads(), prune=prune)
        from tensorcomp.planning.requests import make_planner

        return cls.of(make_planner(effort=effort, **asked), threads, prune)

    def pruned(self, source: Source) -> Source:
        """Return a source as it is after pruning, if there is any."""
        return source if isinstance(source, PrunedSource) else self.pruned_together([source])[0]

    def pruned_together(
        self, sources: Sequence[Source], keys: Sequence[Mapping[str, str]] | None = None
    ) -> Sequence[Source]:
        """Return the files of one model as they are after pruning, if there is any.

        Parameters
        ----------
        sources : sequence of Source
            They must stay open.
        keys : sequence of mapping of str to str, optional
            For each, names of its tensors that no other's has; by default their own.

        Raises
        ------
        PruningError
            If the model cannot be pruned as asked.
        """
        if self.prune is None:
            return sources
        if self.prune.target_size is not None and self.planner and self.planner.budget.is_size:
            raise PruningError("a size is the target of pruning or the budget; give one of them")
        from tensorcomp.selection.stored.select import pruned_sources  # and all scores

        alone = replace(self, prune=None)

        def file_size(pruned: list[PrunedSource]) -> int:
            return sum(alone.write(source, SizeOnly()).output_bytes for source in pruned)

        return pruned_sources(sources, self.prune, keys, file_size=file_size, threads=self.threads)

    def plan(self, source: Source) -> CheckpointPlan:
        """Return what is to become of each tensor, as far as samples tell.

        Raises
        ------
        PlanError
            If the budget cannot be kept, or a rule selects nothing.
        PruningError
            If the source cannot be pruned as asked.
        """
        source = self.pruned(source)
        names = [info.name for info in source.tensors]
        if self.planner is None or self.planner.is_lossless:
            return CheckpointPlan(dict.fromkeys(names, TensorPlan()), effort=self.effort)
        draft = self.draft(source)
        self.planner.check_used(draft)
        return draft.settle(draft.most_bytes(source.nbytes), names)

    def draft(self, source: Source) -> Draft:
        """Return the plan of a source as far as it does not depend on a size."""
        assert self.planner is not None
        from tensorcomp.planning.planner import Tensor

        source = self.pruned(source)
        manifest = draft_manifest(source, tensor_records(source), self.chunk_elements)

        def tensors() -> Iterator[Tensor]:
            for info in source.tensors:
                grid = chunk_grid(info.dtype, info.shape, info.nbytes, self.chunk_elements)
                record = manifest.tensors[info.name]
                data = source.read(info.name)
                likely = record.same_as
                same = likely is not None and are_equal(source, likely, info.name, data)
                array = data.view(grid.dtype).reshape(grid.shape)
                copied = copied_bytes(source, info)
                yield Tensor(info, record.role, array, likely if same else None, copied)

        with Workers(self.threads) as workers:
            draft = self.planner.plan(tensors(), workers, header_bytes(manifest))
        return replace(draft, overhead=self._likely_overhead(source, draft))

    def _likely_overhead(self, source: Source, draft: Draft) -> int:
        """Return about how many bytes of a file are no tensor's."""
        plan = draft.cheapest([info.name for info in source.tensors])
        work = bundled(source, plan, self.chunk_elements)
        records, bundles = tensor_records(source, work), bundle_records(work)
        return header_bytes(likely_manifest(work, records, bundles))

    def write(
        self,
        source: Source,
        file: Output,
        progress: Progress | None = None,
        plan: CheckpointPlan | None = None,
    ) -> Report:
        """Compress a source into a file, and say what became of each tensor.

        Parameters
        ----------
        source : Source
        file : binary file
            Seekable, readable and writable; what is in it is replaced.
        progress : Progress, optional
        plan : CheckpointPlan, optional
            What is to become of each tensor; made by the planner if it is not given. One for a
            size is corrected by what the tensors really take, until the file keeps the size.

        Raises
        ------
        PlanError
            If the budget cannot be kept, or the plan is not for these tensors.
        PruningError
            If the source cannot be pruned as asked.
        """
        if plan is not None and self.prune is not None and self.prune.target_size is not None:
            raise PruningError("a target size is searched for without a plan; give a sparsity")
        source = self.pruned(source)
        progress = progress or Progress()
        names = [info.name for info in source.tensors]
        if plan is not None:
            check_names(plan, names, "the plan")
        keys = [{name: name for name in names}]

        def write(plan: CheckpointPlan | None) -> list[Report]:
            work = bundled(source, plan, self.chunk_elements)
            with Workers(self.threads) as workers:
                return [write_file(work, file, progress, workers, self.effort)]

        if plan is not None:
            return write_obeying(plan, keys, write)[0]
        if self.planner is None or self.planner.is_lossless:
            return write(None)[0]
        draft = self.draft(source)
        self.planner.check_used(draft)
        return write_within(draft, draft.most_bytes(source.nbytes), keys, write)[0]
