"""The main job, compress, as a flow over tensors: read → plan → encode → write.

Tensors and chunks are encoded by threads (kernels hold no lock) and written in order, so the file
is the same whatever the number of threads. At most a few chunks a thread are in memory at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import xxhash

from tensorcomp.checkpoints.checkpoint import Source, TensorInfo
from tensorcomp.container.blob import CHUNK_ELEMENTS, MAX_CHUNK_ELEMENTS, ChunkGrid, chunk_grid
from tensorcomp.container.chunks import CODED
from tensorcomp.container.writer import CompressedWriter, Output, Payload, header_bytes
from tensorcomp.drafting import TreeTable, draft_manifest, tensor_records, with_plan
from tensorcomp.encoding import Encoded, TensorCoder, again, planned_coder
from tensorcomp.planning import (
    EFFORTS,
    CheckpointPlan,
    Draft,
    Planner,
    Tensor,
    TensorPlan,
    check_names,
)
from tensorcomp.reports.outcome import Report, TensorReport
from tensorcomp.sizing import write_obeying, write_within
from tensorcomp.threads import Workers, available_threads
from tensorcomp.written_blob import WrittenBlob

_SMALL_BYTES = 1 << 15  # handing a smaller tensor to a thread costs more than encoding it
_CHUNKS_AHEAD = 8  # of what is being written; each is a few megabytes
_TENSORS_AHEAD = 32  # many, so that there are large ones among them for the other threads


class Progress:
    """Told how far a long job is; does nothing here, a subclass shows it.

    A job that starts over, to keep a size, begins its folder or its file again.
    """

    def begin_folder(self, nbytes: int) -> None:
        """Start a folder of files with so many bytes together; each then begins in its turn."""

    def begin(self, tensors: int, nbytes: int) -> None:
        """Start a file of so many tensors and bytes of them."""

    def advance(self, name: str, nbytes: int) -> None:
        """Count bytes of a tensor that are done; a tensor may come in several pieces."""


@dataclass(frozen=True)
class _Prepared:
    """A tensor before it is encoded."""

    array: np.ndarray
    digest: str
    coder: TensorCoder
    encoded: Encoded | None


@dataclass(frozen=True)
class _Job:
    """One chunk to encode; a duplicate tensor has none (`index` is -1)."""

    info: TensorInfo
    grid: ChunkGrid
    prepared: _Prepared
    index: int
    same_as: str | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the chunk before it is encoded."""
        start, stop = self.grid.bounds(self.index)
        return (stop - start) * self.grid.row_elements * self.grid.dtype.itemsize


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

    Raises
    ------
    ValueError
        If a field is out of range.
    """

    effort: str = "balanced"
    threads: int = 1
    planner: Planner | None = None
    chunk_elements: int = field(default=CHUNK_ELEMENTS, repr=False)

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
    def of(cls, planner: Planner, threads: int | None) -> Pipeline:
        """Return the pipeline of a planner, on all available processors by default."""
        return cls(planner.effort, threads or available_threads(), planner)

    def plan(self, source: Source) -> CheckpointPlan:
        """Return what is to become of each tensor, as far as samples tell.

        Raises
        ------
        PlanError
            If the budget cannot be kept, or a rule selects nothing.
        """
        names = [info.name for info in source.tensors]
        if self.planner is None or self.planner.is_lossless:
            return CheckpointPlan(dict.fromkeys(names, TensorPlan()), effort=self.effort)
        draft = self.draft(source)
        self.planner.check_used(draft)
        return draft.settle(draft.most_bytes(source.nbytes), names)

    def draft(self, source: Source) -> Draft:
        """Return the plan of a source as far as it does not depend on a size."""
        assert self.planner is not None
        manifest = draft_manifest(source, tensor_records(source), self.chunk_elements)

        def tensors() -> Iterator[Tensor]:
            for info in source.tensors:
                grid, record = self._grid(info), manifest.tensors[info.name]
                data = source.read(info.name)
                likely = record.same_as
                same = likely is not None and np.array_equal(source.read(likely), data)
                array = data.view(grid.dtype).reshape(grid.shape)
                yield Tensor(info, record.role, array, likely if same else None)

        with Workers(self.threads) as workers:
            draft = self.planner.plan(tensors(), workers, header_bytes(manifest))
        likely = with_plan(manifest, draft.cheapest(manifest.tensors))
        return replace(draft, overhead=header_bytes(likely))

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
        """
        progress = progress or Progress()
        names = [info.name for info in source.tensors]
        if plan is not None:
            check_names(plan, names, "the plan")
        keys = [{name: name for name in names}]

        def write(plan: CheckpointPlan | None) -> list[Report]:
            with Workers(self.threads) as workers:
                return [self._write_once(source, file, progress, plan, workers)]

        if plan is not None:
            return write_obeying(plan, keys, write)[0]
        if self.planner is None or self.planner.is_lossless:
            return write(None)[0]
        draft = self.draft(source)
        self.planner.check_used(draft)
        return write_within(draft, draft.most_bytes(source.nbytes), keys, write)[0]

    def _grid(self, info: TensorInfo, plan: TensorPlan | None = None) -> ChunkGrid:
        elements = _long_chunk(plan) or self.chunk_elements
        return chunk_grid(info.dtype, info.shape, info.nbytes, elements)

    def _write_once(
        self,
        source: Source,
        file: Output,
        progress: Progress,
        plan: CheckpointPlan | None,
        workers: Workers,
    ) -> Report:
        progress.begin(len(source.tensors), sum(info.nbytes for info in source.tensors))
        records = tensor_records(source)
        draft = draft_manifest(source, records, self.chunk_elements)
        writer = CompressedWriter(file, draft if plan is None else with_plan(draft, plan))
        trees = TreeTable()
        reports = {}
        blob: WrittenBlob | None = None
        for job, encoded in workers.in_order(
            _encode, self._jobs(source, plan, workers), small=_is_small, ahead=_CHUNKS_AHEAD
        ):
            name = job.info.name
            progress.advance(name, job.nbytes)
            if job.same_as is not None:
                records[name] = replace(records[name], same_as=job.same_as, digest="")
                reports[name] = TensorReport(records[name], "", f"equals {job.same_as}", 0)
                continue
            if job.index == 0:
                blob = WrittenBlob(writer, job.info.name, job.grid, job.prepared.coder)
            assert blob is not None
            if not blob.add(encoded):
                continue
            coded = blob.marks <= {CODED}
            blob = self._kept(blob, job, workers)
            used = [trees.add(tree, blob.coder.why) for tree in blob.coder.coder.trees]
            own = _long_chunk(None if plan is None else plan.tensors[name])
            records[name] = replace(
                blob.record(records[name], job.prepared.digest, used), chunk_elements=own
            )
            planned = trees.planned[used[0]]
            reports[name] = TensorReport(records[name], planned.tree, planned.why, blob.size, coded)
        output_bytes = writer.finish(replace(draft, trees=tuple(trees.planned), tensors=records))
        ordered = tuple(reports[info.name] for info in source.tensors)
        return Report(source.nbytes, output_bytes, ordered)

    def _kept(self, blob: WrittenBlob, job: _Job, workers: Workers) -> WrittenBlob:
        """Return the blob if it keeps its bound, or else one that does, written in its place."""
        array, grid = job.prepared.array, job.grid
        while True:
            coder = again(blob.coder, blob.errors, blob.marks, array, grid, self.effort)
            if coder is None:
                return blob
            blob.writer.rewind()
            blob = WrittenBlob(blob.writer, blob.name, grid, coder)
            tensor = _Prepared(array, job.prepared.digest, coder, None)
            jobs = (_Job(job.info, grid, tensor, index) for index in range(grid.count))
            for _, encoded in workers.in_order(_encode, jobs):
                blob.add(encoded)

    def _jobs(
        self, source: Source, plan: CheckpointPlan | None, workers: Workers
    ) -> Iterator[_Job]:
        """Yield the chunks of every tensor; one job without a chunk for each duplicate."""
        first_with: dict[tuple[str, int, TensorPlan | None, str], str] = {}

        def plan_of(info: TensorInfo) -> TensorPlan | None:
            return None if plan is None else plan.tensors[info.name]

        grids = {info.name: self._grid(info, plan_of(info)) for info in source.tensors}

        def prepare(info: TensorInfo) -> _Prepared:
            grid = grids[info.name]
            data = source.read(info.name)
            array = data.view(grid.dtype).reshape(grid.shape)
            digest = xxhash.xxh3_128_hexdigest(data)
            coder, encoded = planned_coder(array, grid, plan_of(info), self.effort)
            if (
                encoded is None
                and grid.count == 1
                and (*_key(info, plan_of(info)), digest) not in first_with
            ):
                encoded = coder.encode(array, 0)  # one task for most tensors
            return _Prepared(array, digest, coder, encoded)

        for info, prepared in workers.in_order(
            prepare,
            source.tensors,
            small=lambda info: info.nbytes < _SMALL_BYTES,
            ahead=_TENSORS_AHEAD,
        ):
            grid = grids[info.name]
            key = (*_key(info, plan_of(info)), prepared.digest)
            first = first_with.setdefault(key, info.name)
            if first != info.name and np.array_equal(source.read(first), source.read(info.name)):
                yield _Job(info, grid, prepared, -1, same_as=first)
                continue
            for index in range(grid.count):
                yield _Job(info, grid, prepared, index)


def _long_chunk(plan: TensorPlan | None) -> int:
    """Return the elements of a chunk where a tensor's tree asks for long ones, else 0."""
    if plan is None or plan.tree is None:
        return 0
    return MAX_CHUNK_ELEMENTS if any(c.long_chunks for c in plan.tree.walk()) else 0


def _key(info: TensorInfo, plan: TensorPlan | None) -> tuple[str, int, TensorPlan | None]:
    """Return what equal tensors must share besides their bytes to be stored once."""
    lossy = plan is not None and plan.tree is not None
    return info.dtype, info.nbytes, replace(plan, why="") if lossy else None  # type: ignore[type-var]


def _encode(job: _Job) -> Encoded:
    """Return what a chunk becomes."""
    if job.index < 0:
        return Encoded(Payload((), 0))
    if job.prepared.encoded is not None:
        return job.prepared.encoded
    start, stop = job.grid.bounds(job.index)
    return job.prepared.coder.encode(job.prepared.array[start:stop], job.index)


def _is_small(job: _Job) -> bool:
    return job.index < 0 or job.prepared.encoded is not None or job.nbytes < _SMALL_BYTES
