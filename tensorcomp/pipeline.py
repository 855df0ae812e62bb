"""The main job, compress, as a flow over tensors: read → plan → encode → write.

Tensors and chunks are encoded by threads (kernels hold no lock) and written in order, so the file
is the same whatever the number of threads. At most a few chunks a thread are in memory at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import xxhash

from tensorcomp.checkpoints.checkpoint import Recipe, TensorInfo
from tensorcomp.codecs.text import format_tree
from tensorcomp.codecs.tree import Node
from tensorcomp.container.blob import CHUNK_ELEMENTS, MAX_CHUNK_ELEMENTS, ChunkGrid, chunk_grid
from tensorcomp.container.chunks import ChunkCoder
from tensorcomp.container.manifest import DIGEST_DIGITS, Manifest, PlannedTree, TensorRecord
from tensorcomp.container.writer import CompressedWriter, Output, Payload
from tensorcomp.planning import EFFORTS, Plan, classify, plan_lossless, sample_rows
from tensorcomp.threads import Workers

_SMALL_BYTES = 1 << 15  # handing a smaller tensor to a thread costs more than encoding it
_CHUNKS_AHEAD = 8  # of what is being written; each is a few megabytes
_TENSORS_AHEAD = 32  # many, so that there are large ones among them for the other threads
_LOOK_BYTES = 256  # at both ends of a tensor, to guess how many duplicates there are


class Source(Protocol):
    """What `Pipeline` compresses: an open checkpoint, or tensors in memory."""

    tensors: tuple[TensorInfo, ...]
    aliases: Mapping[str, str]
    nbytes: int

    def read(self, name: str) -> np.ndarray:
        """Return a tensor's bytes, flat uint8."""
        ...

    def recipe(self) -> Recipe:
        """Return what rebuilds the file."""
        ...


@dataclass(frozen=True)
class TensorReport:
    """What became of one tensor.

    Parameters
    ----------
    record : TensorRecord
    tree : str
        Text of its tree; empty for a duplicate.
    why : str
        Why that tree.
    nbytes : int
        Bytes of its blob; 0 for a duplicate.
    """

    record: TensorRecord
    tree: str
    why: str
    nbytes: int


@dataclass(frozen=True)
class Report:
    """What became of a checkpoint.

    Parameters
    ----------
    input_bytes, output_bytes : int
        Sizes of the files, every byte counted.
    tensors : tuple of TensorReport
        In the source's order.
    """

    input_bytes: int
    output_bytes: int
    tensors: tuple[TensorReport, ...]


class Progress:
    """Told how far a long job is; does nothing here, a subclass shows it."""

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
    plan: Plan
    coder: ChunkCoder
    payload: Payload | None


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
    chunk_elements : int
        Elements of a chunk at most: what a slice must decode, and what a thread holds.

    Raises
    ------
    ValueError
        If a field is out of range.
    """

    effort: str = "balanced"
    threads: int = 1
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

    def write(self, source: Source, file: Output, progress: Progress | None = None) -> Report:
        """Compress a source into an empty file, and say what became of each tensor.

        Parameters
        ----------
        source : Source
        file : binary file
            Seekable, readable, writable and empty.
        progress : Progress, optional
        """
        progress = progress or Progress()
        progress.begin(len(source.tensors), sum(info.nbytes for info in source.tensors))
        records = {
            info.name: TensorRecord(
                name=info.name,
                dtype=info.dtype,
                shape=info.shape,
                role=classify(info.name, info.dtype, info.shape),
                nbytes=info.nbytes,
                digest=_placeholder(info.name),
            )
            for info in source.tensors
        }
        draft = Manifest(
            chunk_elements=self.chunk_elements,
            trees=(),
            tensors=_with_likely_duplicates(source, records),
            recipe=source.recipe(),
            source_bytes=source.nbytes,
            aliases=source.aliases,
        )
        writer = CompressedWriter(file, draft)
        trees = _TreeTable()
        reports = {}
        with Workers(self.threads) as workers:
            for job, payload in workers.in_order(
                _encode, self._jobs(source, workers), small=_is_small, ahead=_CHUNKS_AHEAD
            ):
                name, prepared = job.info.name, job.prepared
                if job.same_as is not None:
                    records[name] = replace(records[name], same_as=job.same_as, digest="")
                    reports[name] = TensorReport(records[name], "", f"equals {job.same_as}", 0)
                    progress.advance(name, job.info.nbytes)
                    continue
                if job.index == 0:
                    shared = prepared.coder.pack() if job.grid.count > 1 else b""
                    writer.begin(name, shared, job.grid.count)
                size = writer.write_chunk(payload)
                progress.advance(name, job.nbytes)
                if size:
                    used = [trees.add(tree, prepared.plan.why) for tree in prepared.coder.trees]
                    records[name] = replace(
                        records[name],
                        tree=used[0],
                        fallback=used[1] if len(used) > 1 else None,
                        digest=prepared.digest[:DIGEST_DIGITS],
                    )
                    planned = trees.planned[used[0]]
                    reports[name] = TensorReport(records[name], planned.tree, planned.why, size)
        output_bytes = writer.finish(replace(draft, trees=tuple(trees.planned), tensors=records))
        ordered = tuple(reports[info.name] for info in source.tensors)
        return Report(source.nbytes, output_bytes, ordered)

    def _jobs(self, source: Source, workers: Workers) -> Iterator[_Job]:
        """Yield the chunks of every tensor; one job without a chunk for each duplicate."""
        first_with: dict[tuple[str, int, str], str] = {}
        grids = {
            info.name: chunk_grid(info.dtype, info.shape, info.nbytes, self.chunk_elements)
            for info in source.tensors
        }

        def prepare(info: TensorInfo) -> _Prepared:
            grid = grids[info.name]
            data = source.read(info.name)
            array = data.view(grid.dtype).reshape(grid.shape)
            plan = plan_lossless(array, self.effort)
            trees = (plan.tree,) if plan.fallback is None else (plan.tree, plan.fallback)
            if grid.count == 1:
                coder = ChunkCoder.alone(trees)
            else:
                coder = ChunkCoder.learn(trees, sample_rows(array))
            digest = xxhash.xxh3_128_hexdigest(data)
            payload = None
            if grid.count == 1 and (info.dtype, info.nbytes, digest) not in first_with:
                payload = Payload.of(coder.encode(array))  # one task for most tensors
            return _Prepared(array, digest, plan, coder, payload)

        for info, prepared in workers.in_order(
            prepare,
            source.tensors,
            small=lambda info: info.nbytes < _SMALL_BYTES,
            ahead=_TENSORS_AHEAD,
        ):
            grid = grids[info.name]
            first = first_with.setdefault((info.dtype, info.nbytes, prepared.digest), info.name)
            if first != info.name and np.array_equal(source.read(first), source.read(info.name)):
                yield _Job(info, grid, prepared, -1, same_as=first)
                continue
            for index in range(grid.count):
                yield _Job(info, grid, prepared, index)


def _placeholder(name: str) -> str:
    """Return a digest to reckon with until there is one: as long, and compressed as little."""
    return xxhash.xxh3_128_hexdigest(name.encode(errors="replace"))[:DIGEST_DIGITS]


def _with_likely_duplicates(
    source: Source, records: Mapping[str, TensorRecord]
) -> dict[str, TensorRecord]:
    """Return the records with tensors that begin and end like an earlier one marked as its equals.

    Only the room set aside for the header depends on it: duplicates need less of it.
    """
    first_with: dict[tuple[str, int, bytes], str] = {}
    marked = {}
    for name, record in records.items():
        data = source.read(name)
        ends = data[:_LOOK_BYTES].tobytes() + data[-_LOOK_BYTES:].tobytes()
        first = first_with.setdefault((record.dtype, record.nbytes, ends), name)
        marked[name] = record if first == name else replace(record, same_as=first)
    return marked


def _encode(job: _Job) -> Payload:
    """Return a chunk's payload."""
    if job.index < 0:
        return Payload((), 0)
    if job.prepared.payload is not None:
        return job.prepared.payload
    start, stop = job.grid.bounds(job.index)
    return Payload.of(job.prepared.coder.encode(job.prepared.array[start:stop]))


def _is_small(job: _Job) -> bool:
    return job.index < 0 or job.prepared.payload is not None or job.nbytes < _SMALL_BYTES


class _TreeTable:
    """The trees of a file, each once; a tree's text is written once too."""

    def __init__(self) -> None:
        self.planned: list[PlannedTree] = []
        self._numbers: dict[PlannedTree, int] = {}
        self._texts: dict[int, tuple[Node, str]] = {}  # by identity: hashing a tree takes longer

    def add(self, tree: Node, why: str) -> int:
        """Return the number of a tree, a new one if it is new."""
        if id(tree) not in self._texts:
            self._texts[id(tree)] = tree, format_tree(tree)
        planned = PlannedTree(self._texts[id(tree)][1], why)
        number = self._numbers.setdefault(planned, len(self.planned))
        if number == len(self.planned):
            self.planned.append(planned)
        return number
