"""Encode the tensors of a source on threads, and write them in order.

Tensors and chunks are encoded by threads (kernels hold no lock) and written in order, so the file
is the same whatever the number of threads. At most a few chunks a thread are in memory at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

import xxhash

from tensorcomp._threads import Workers
from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.container.blob import CODED
from tensorcomp.container.chunk_grid import MAX_CHUNK_ELEMENTS, ChunkGrid, chunk_grid
from tensorcomp.container.records import (
    DIGEST_DIGITS,
    PlannedTree,
    TensorRecord,
    TensorReference,
)
from tensorcomp.container.writer import CompressedWriter, Output
from tensorcomp.dtypes import block_size
from tensorcomp.metrics.distortion import ErrorSums
from tensorcomp.pipeline.bundle import BundledSource
from tensorcomp.pipeline.encode import EncodedChunk, TensorEncoder, tightened_encoder
from tensorcomp.pipeline.plan import known_records, likely_manifest, six_digits
from tensorcomp.pipeline.prepare import ChunkJob, chunk_jobs, encode
from tensorcomp.pipeline.references import of_bundle
from tensorcomp.pipeline.summary import FileResult
from tensorcomp.planning.plan import bound_to_json
from tensorcomp.progress import Progress

Result = TypeVar("Result")

_LOST_ROW = 0.5  # rel-L2 from which on a row counts as lost
_CHUNKS_AHEAD = 8  # of what is being written; each is a few megabytes


def write_file(
    source: BundledSource, file: Output, progress: Progress, workers: Workers, effort: str
) -> FileResult:
    """Compress a source into a file, whose content is replaced.

    The effort is for tensors that the plan leaves to the lossless planner.
    """
    tensors = source.original.tensors
    progress.begin(len(tensors), sum(info.nbytes for info in tensors))
    grids = {info.name: _grid(source, info) for info in source.tensors}
    jobs = _begun(
        workers.in_order(
            encode,
            chunk_jobs(source, grids, effort, workers),
            small=lambda job: job.is_small,
            prefetch=_CHUNKS_AHEAD,
        )
    )
    written = _FileWriter(source, file)
    for info in tensors:
        if info.name in source.same_as:
            progress.advance(info.name, info.nbytes)
    blob: BlobWriter | None = None
    for job, encoded in jobs:
        name = job.info.name
        if name not in source.bundles:
            progress.advance(name, job.nbytes)
        if job.same_as is not None:
            written.add_duplicate(name, job.same_as)
            continue
        if job.chunk == 0:
            blob = BlobWriter(written.writer, name, job.grid, job.prepared.coder)
        assert blob is not None
        if blob.add(encoded):
            coded = blob.marks <= {CODED}
            written.add_blob(_kept(blob, job, workers, effort), job, coded=coded)
            for info in source.bundles.get(name, ()):
                progress.advance(info.name, info.nbytes)
    return written.finish()


def _grid(source: BundledSource, info: TensorInfo) -> ChunkGrid:
    elements = _own_chunk(source, info.name, info.dtype) or source.chunk_elements
    return chunk_grid(info.dtype, info.shape, info.nbytes, elements)


def _own_chunk(source: BundledSource, name: str, dtype: str) -> int:
    """Return the elements of a tensor's chunks if they are others than usual, else 0.

    A tree may ask for long chunks, and blocks of ggml's types are not cut.
    """
    plan = source.planned(name)
    if plan is not None and plan.tree is not None:
        return MAX_CHUNK_ELEMENTS if any(c.long_chunks for c in plan.tree.walk()) else 0
    block = block_size(dtype)
    return source.chunk_elements // block[1] * block[1] if block else 0


def _begun(results: Iterator[Result]) -> Iterator[Result]:
    """Wait for the first result, so that threads start on those that follow."""
    first = list(itertools.islice(results, 1))
    return itertools.chain(first, results)


class _FileWriter:
    """File being written: its records and trees so far."""

    def __init__(self, source: BundledSource, file: Output) -> None:
        self._source = source
        self._tensors, self._bundles = known = known_records(source)
        draft = likely_manifest(source, known)
        self.writer = CompressedWriter(file, draft)
        self._draft = replace(draft, tensors={}, bundles={})  # its records are but likely
        self._trees: dict[tuple[str, str], int] = {}
        self._sizes: dict[str, int] = {}
        self._refused: set[str] = set()

    def add_duplicate(self, name: str, same_as: str) -> None:
        """Record a tensor as a duplicate of another."""
        record = self._tensors[name]
        self._tensors[name] = replace(
            record, same_as=same_as, digest="", pruned=None, reference=None
        )

    def add_blob(self, blob: BlobWriter, job: ChunkJob, *, coded: bool) -> None:
        """Record a tensor or bundle, of which `job` is a chunk."""
        name, prepared, coder = blob.name, job.prepared, blob.coder
        lossless, pruned, errors = coder.lossless, prepared.pruned, blob.errors
        if pruned is not None:
            errors = pruned.cost if lossless else blob.from_original
        is_exact = lossless and pruned is None
        trees = [
            self._trees.setdefault((tree.text, coder.reason), len(self._trees))
            for tree in coder.coder.trees
        ]
        records = self._bundles if name in self._bundles else self._tensors
        record = records[name]
        records[name] = TensorRecord(
            name=name,
            dtype=record.dtype,
            shape=record.shape,
            role=record.role,
            nbytes=record.nbytes,
            tree=trees[0],
            fallback=trees[1] if len(trees) > 1 else None,
            digest=(prepared.digest if lossless else blob.digest.hexdigest())[:DIGEST_DIGITS],
            rel_l2=0.0 if is_exact else six_digits(errors.rel_l2),
            max_abs_error=0.0 if is_exact else six_digits(errors.max_abs),
            row_error=0.0 if lossless else _lost_row(blob.errors),
            output_error=0.0 if lossless else _output_error(errors),
            bound={} if coder.bound is None else bound_to_json(coder.bound),
            chunk_elements=_own_chunk(self._source, name, record.dtype),
            pruned=None if pruned is None else pruned.record,
            reference=self._reference(name, coder),
        )
        self._sizes[name] = blob.size
        if not coded:
            self._refused.add(name)

    def _reference(self, name: str, coder: TensorEncoder) -> TensorReference | None:
        """Return the reference of a tensor or bundle; record those of the bundle's tensors."""
        references, own = self._source.references, coder.reference
        if name not in self._bundles:
            return None if own is None else references.of_tensor(name)
        for info in self._source.bundles[name]:
            found = None if own is None else references.of_bundled(info.name)
            self._tensors[info.name].reference = found
        return None if own is None else of_bundle(name, own)

    def finish(self) -> FileResult:
        """Write the header."""
        manifest = replace(
            self._draft,
            bases=self._source.base_records(self._tensors),
            trees=tuple(itertools.starmap(PlannedTree, self._trees)),
            tensors=self._tensors,
            bundles=self._bundles,
        )
        return FileResult(manifest, self._sizes, self.writer.finish(manifest), self._refused)


def _kept(blob: BlobWriter, job: ChunkJob, workers: Workers, effort: str) -> BlobWriter:
    """Return the blob, encoded again in its place until it keeps its bound."""
    array, grid = job.prepared.array, job.grid
    while True:
        coder = tightened_encoder(
            blob.coder, blob.errors, blob.marks, array, grid, effort, keeps_zeros=blob.keeps_zeros
        )
        if coder is None:
            return blob
        blob.writer.rewind()
        blob = BlobWriter(blob.writer, blob.name, grid, coder)
        tensor = job.prepared._replace(coder=coder, encoded=None)
        jobs = (ChunkJob(job.info, grid, tensor, index) for index in range(grid.count))
        for _, encoded in workers.in_order(encode, jobs):
            blob.add(encoded)


def _lost_row(errors: ErrorSums) -> float:
    """Return the error of the worst row if it is far above that of the tensor; else 0."""
    worst = six_digits(errors.worst_row)
    return worst if worst >= max(_LOST_ROW, 2 * errors.rel_l2) else 0.0


def _output_error(errors: ErrorSums) -> float:
    """Return the error of the output; 0 where that has no relative one, as it was all zeros."""
    return six_digits(errors.output_error) if errors.output_error < math.inf else 0.0


_EXACT = ErrorSums()


class BlobWriter:
    """Blob being written, and the errors and digest of what it decodes to."""

    def __init__(
        self, writer: CompressedWriter, name: str, grid: ChunkGrid, coder: TensorEncoder
    ) -> None:
        self.writer, self.name, self.coder = writer, name, coder
        self.errors = self.from_original = _EXACT
        self.keeps_zeros = True
        self.marks: set[int] = set()
        self.size = 0
        self.digest = xxhash.xxh3_128()
        writer.begin(name, coder.coder.pack() if grid.count > 1 else b"", grid.count)

    def add(self, encoded: EncodedChunk) -> bool:
        """Write the next chunk; return whether it was the last."""
        self.size = self.writer.write_chunk(encoded.payload)
        if encoded.decoded is not None:
            self.from_original += encoded.from_original
            self.keeps_zeros &= encoded.keeps_zeros
            self.errors += encoded.errors
            self.marks.add(encoded.mark)
            self.digest.update(encoded.decoded)
        return self.size > 0
