"""Plan a source from samples and estimate its manifest before encoding.

A file's header stands before its blobs, so room for it is set aside when only this is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import starmap
from typing import TYPE_CHECKING, TypeAlias

import xxhash

from tensorcomp._threads import Workers
from tensorcomp.checkpoints.base import Checkpoint
from tensorcomp.container.chunk_grid import chunk_grid
from tensorcomp.container.manifest import Manifest
from tensorcomp.container.records import (
    DIGEST_DIGITS,
    PlannedTree,
    TensorRecord,
    TensorReference,
)
from tensorcomp.container.writer import header_bytes
from tensorcomp.pipeline.bundle import BundledSource, bundled
from tensorcomp.pipeline.options import CompressOptions
from tensorcomp.pipeline.prepare import are_equal, copied_bytes
from tensorcomp.planning.plan import TensorPlan, bound_to_json
from tensorcomp.planning.roles.classify import roles_of
from tensorcomp.selection.stored.pruned_checkpoint import PrunedCheckpoint

if TYPE_CHECKING:
    from tensorcomp.planning.allocation import AllocationProblem
    from tensorcomp.planning.planner import Planner, Tensor

Records: TypeAlias = tuple[dict[str, TensorRecord], dict[str, TensorRecord]]

_NO_PLAN = TensorPlan()


def source_problem(
    source: Checkpoint, planner: Planner, options: CompressOptions
) -> AllocationProblem:
    """Return the allocation problem of a pruned source, from samples.

    Raises
    ------
    PlanError
        If a tree needs a budget and there is none, or a tensor's importance is not given.
    """
    alone = BundledSource(source, None, options.chunk_elements, source.tensors, {}, {})
    manifest = likely_manifest(alone, known_records(alone))

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
        problem = planner.plan(tensors(), workers)
    plan = problem.cheapest([info.name for info in source.tensors])
    work = bundled(source, plan, options.chunk_elements)
    header = header_bytes(likely_manifest(work, known_records(work)))
    weights = sum(math.prod(info.shape) for info in source.arrays)
    return replace(problem, overhead=header, weights=weights)


def known_records(work: BundledSource) -> Records:
    """Return the records of all tensors and bundles, as known before encoding."""
    source = work.original
    bundle_of = {info.name: name for name, infos in work.bundles.items() for info in infos}
    roles = roles_of(source.tensors)
    pruned = source.planned() if isinstance(source, PrunedCheckpoint) else {}
    tensors = {}
    for info in source.tensors:
        name = info.name
        bundle, first = bundle_of.get(name), work.same_as.get(name)
        match = work.references.matches.get(name)
        tensors[name] = TensorRecord(
            name=name,
            dtype=info.dtype,
            shape=info.shape,
            role=roles[name],
            nbytes=info.nbytes,
            digest=_placeholder(name) if bundle is None and first is None else "",
            same_as=first,
            pruned=pruned.get(name),
            bundle=bundle,
            reference=match
            and TensorReference(match.base, _placeholder(match.info.name), match.info.name),
        )
    bundles = {
        info.name: TensorRecord(
            info.name, info.dtype, info.shape, "", info.nbytes, digest=_placeholder(info.name)
        )
        for info in work.tensors
        if info.name in work.bundles
    }
    return tensors, bundles


def _placeholder(name: str) -> str:
    """Return a stand-in for a digest: as long, and as incompressible."""
    return xxhash.xxh3_128_hexdigest(name.encode(errors="replace"))[:DIGEST_DIGITS]


def likely_manifest(work: BundledSource, known: Records) -> Manifest:
    """Return the estimated manifest of a source, with its plan's trees.

    Tensors that begin and end like an earlier one count as duplicates, which need less room. In
    place of errors there are numbers as incompressible. The records are those of `known_records`.
    """
    source, plan, (tensors, bundles) = work.original, work.plan, known
    looked_at = source.original if isinstance(source, PrunedCheckpoint) else source
    first_with: dict[tuple[str, int, int], str] = {}
    trees: dict[tuple[str, str], int] = {}
    likely = dict(tensors)
    for name, record in tensors.items():
        if not record.has_blob:
            continue
        ends = xxhash.xxh3_64_intdigest(looked_at.ends(name))
        first = first_with.setdefault((record.dtype, record.nbytes, ends), name)
        if first != name:
            likely[name] = replace(record, same_as=first)
            continue
        planned = _NO_PLAN if plan is None else plan.tensors[name]
        if record.pruned is None and planned.tree is None:
            continue
        error = int(record.digest, 16) / 16**DIGEST_DIGITS
        record = replace(record, rel_l2=six_digits(error), max_abs_error=six_digits(error**2))
        if record.pruned is not None:
            record = replace(record, pruned=replace(record.pruned, rel_l2=error))
        if planned.tree is not None:
            record = replace(
                record,
                tree=trees.setdefault((planned.tree.text, planned.reason), len(trees)),
                fallback=0,
                output_error=0.0 if planned.calibrated is None else six_digits(error),
                bound={} if planned.bound is None else bound_to_json(planned.bound),
            )
        likely[name] = record
    return Manifest(
        chunk_elements=work.chunk_elements,
        trees=tuple(starmap(PlannedTree, trees)),
        tensors=likely,
        template=source.template(),
        source_bytes=source.nbytes,
        aliases=dict(source.aliases),
        bundles=bundles,
        bases=work.base_records(likely),
    )


def six_digits(error: float) -> float:
    """Round an error to the six digits of a manifest."""
    return float(f"{error:.6g}")
