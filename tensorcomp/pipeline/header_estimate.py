"""Estimate the manifest before encoding, to reserve space for the header.

A file's header stands before its blobs, so room for it is set aside when only this is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import xxhash

from tensorcomp.checkpoints.base import Checkpoint
from tensorcomp.codecs.text import format_tree
from tensorcomp.codecs.tree import Node
from tensorcomp.container.manifest import Manifest
from tensorcomp.container.records import DIGEST_DIGITS, PlannedTree, TensorRecord
from tensorcomp.pipeline.bundle import BundledSource
from tensorcomp.planning.plan import Plan, bound_to_json
from tensorcomp.planning.roles.classify import roles_of
from tensorcomp.selection.stored.pruned_checkpoint import PrunedCheckpoint

_LOOK_BYTES = 256  # at both ends of a tensor, to guess how many duplicates there are


def tensor_records(
    source: Checkpoint, work: BundledSource | None = None
) -> dict[str, TensorRecord]:
    """Return the records of all tensors, as known before encoding.

    Parameters
    ----------
    source : Checkpoint
    work : BundledSource, optional
        The same tensors as they are encoded.
    """
    roles = roles_of(source.tensors)
    pruned = {} if not isinstance(source, PrunedCheckpoint) else source.planned()
    bundle_of = {} if work is None else work.bundle_of
    same_as = {} if work is None else work.same_as
    records = {}
    for info in source.tensors:
        name = info.name
        bundle, first = bundle_of.get(name), same_as.get(name)
        records[name] = TensorRecord(
            name=name,
            dtype=info.dtype,
            shape=info.shape,
            role=roles[name],
            nbytes=info.nbytes,
            digest=_placeholder(name) if bundle is None and first is None else "",
            same_as=first,
            pruned=pruned.get(name),
            bundle=bundle,
        )
    return records


def bundle_records(work: BundledSource) -> dict[str, TensorRecord]:
    """Return the records of all bundles, as known before encoding."""
    return {
        info.name: TensorRecord(
            name=info.name,
            dtype=info.dtype,
            shape=info.shape,
            role="",
            nbytes=info.nbytes,
            digest=_placeholder(info.name),
        )
        for info in work.tensors
        if info.name in work.bundles
    }


def draft_manifest(
    source: Checkpoint,
    records: Mapping[str, TensorRecord],
    chunk_elements: int,
    bundles: Mapping[str, TensorRecord] = MappingProxyType({}),
) -> Manifest:
    """Return the manifest of a source, as known before encoding."""
    looked_at = source.original if isinstance(source, PrunedCheckpoint) else source
    expected = {name: _with_placeholders(record) for name, record in records.items()}
    return Manifest(
        chunk_elements=chunk_elements,
        trees=(),
        tensors=_with_likely_duplicates(looked_at, expected),
        template=source.template(),
        source_bytes=source.nbytes,
        aliases=source.aliases,
        bundles=bundles,
    )


def _placeholder(name: str) -> str:
    """Return a stand-in for a digest: as long, and as incompressible."""
    return xxhash.xxh3_128_hexdigest(name.encode(errors="replace"))[:DIGEST_DIGITS]


def _with_placeholders(record: TensorRecord) -> TensorRecord:
    """Return a record with stand-ins for the errors of a pruned tensor."""
    if record.pruned is None:
        return record
    share = _as_incompressible_as_an_error(record)
    return replace(
        record,
        pruned=replace(record.pruned, rel_l2=share),
        rel_l2=six_digits(share),
        max_abs_error=six_digits(share**2),
    )


def _as_incompressible_as_an_error(record: TensorRecord) -> float:
    return float(int(record.digest, 16) / 16**DIGEST_DIGITS)


def _with_likely_duplicates(
    source: Checkpoint, records: Mapping[str, TensorRecord]
) -> dict[str, TensorRecord]:
    """Mark tensors that begin and end like an earlier one as duplicates.

    Only the room set aside for the header depends on it: duplicates need less of it.
    """
    first_with: dict[tuple[str, int, bytes], str] = {}
    marked = {}
    for name, record in records.items():
        if not record.has_blob:
            marked[name] = record
            continue
        data = source.read(name)
        ends = data[:_LOOK_BYTES].tobytes() + data[-_LOOK_BYTES:].tobytes()
        first = first_with.setdefault((record.dtype, record.nbytes, ends), name)
        marked[name] = record if first == name else replace(record, same_as=first)
    return marked


def likely_manifest(
    work: BundledSource, tensors: Mapping[str, TensorRecord], bundles: Mapping[str, TensorRecord]
) -> Manifest:
    """Return the estimated manifest of a source, with its plan's trees.

    Parameters
    ----------
    work : BundledSource
    tensors, bundles : mapping of str to TensorRecord
        As `tensor_records` and `bundle_records` give them.
    """
    draft = draft_manifest(work.original, tensors, work.chunk_elements, bundles)
    return draft if work.plan is None else with_plan(draft, work.plan)


def with_plan(draft: Manifest, plan: Plan) -> Manifest:
    """Return a draft manifest with the trees, errors and bounds of a plan."""
    trees = TreeTable()
    tensors = dict(draft.tensors)
    for name, record in draft.tensors.items():
        planned = plan.tensors[name]
        if planned.tree is None or not record.has_blob:
            continue
        digits = _as_incompressible_as_an_error(record)
        tensors[name] = replace(
            record,
            tree=trees.add(planned.tree, planned.why),
            fallback=0,
            rel_l2=six_digits(digits),
            max_abs_error=six_digits(digits**2),
            bound={} if planned.bound is None else bound_to_json(planned.bound),
        )
    return replace(draft, trees=tuple(trees.planned), tensors=tensors)


def six_digits(error: float) -> float:
    """Round an error to the six digits of a manifest."""
    return float(f"{error:.6g}")


class TreeTable:
    """Table of the distinct trees of a file."""

    def __init__(self) -> None:
        self.planned: list[PlannedTree] = []
        self._numbers: dict[PlannedTree, int] = {}
        self._known: dict[tuple[int, str], int] = {}  # by identity: hashing a tree takes longer
        self._trees: list[Node] = []  # so that no identity is used again

    def add(self, tree: Node, why: str) -> int:
        """Return the index of a tree, added if new."""
        number = self._known.get((id(tree), why))
        if number is None:
            planned = PlannedTree(format_tree(tree), why)
            number = self._numbers.setdefault(planned, len(self.planned))
            if number == len(self.planned):
                self.planned.append(planned)
            self._known[id(tree), why] = number
            self._trees.append(tree)
        return number
