"""Group the small tensors of a source into bundles."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
import xxhash

from tensorcomp.checkpoints.base import Checkpoint, TensorInfo
from tensorcomp.container.bundles import ROW
from tensorcomp.container.chunk_grid import ChunkGrid
from tensorcomp.container.records import BaseRecord, TensorRecord
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.pipeline.references import NO_REFERENCES, References
from tensorcomp.planning.plan import Plan, TensorPlan
from tensorcomp.planning.roles.classify import roles_of
from tensorcomp.selection.stored.pruned_checkpoint import PrunedCheckpoint, PrunedTensor

PlanGiven: TypeAlias = "Callable[..., TensorPlan | None]"

_SMALL = 1 << 11  # elements: a larger tensor gains more by a tree of its own
_MAX_ELEMENTS = 1 << 17  # elements of a bundle, all of which are decoded for one of its tensors
_MIN_TENSORS = 16  # tensors of one dtype that are worth a bundle


@dataclass(frozen=True)
class BundledSource:
    """View of a source as encoded: large tensors, and bundles of small ones.

    Parameters
    ----------
    original : Checkpoint
        Must stay open.
    plan : Plan or None
        Of the original's tensors.
    chunk_elements : int
        Elements of a chunk at most, where a tree does not ask for more.
    tensors : tuple of TensorInfo
        Tensors and bundles to encode, in order.
    bundles : mapping of str to sequence of TensorInfo
        The tensors of each bundle.
    same_as : mapping of str to str
        Small tensors that equal an earlier one bit for bit, and which.
    references : References
        What tensors are coded against.
    plan_given : callable or None
        Plans a tensor anew once its reference is known, as `update_plans.plan_given`.
    """

    original: Checkpoint
    plan: Plan | None
    chunk_elements: int
    tensors: tuple[TensorInfo, ...]
    bundles: Mapping[str, Sequence[TensorInfo]]
    same_as: Mapping[str, str]
    references: References = NO_REFERENCES
    plan_given: PlanGiven | None = None

    def planned(self, name: str) -> TensorPlan | None:
        """Return the plan of a tensor or bundle; None for the lossless planner."""
        if name in self.bundles:
            return TensorPlan(reason="small tensors together")
        return None if self.plan is None else self.plan.tensors[name]

    def read(self, name: str) -> np.ndarray:
        """Return the bytes of a tensor or a bundle, flat uint8."""
        if name not in self.bundles:
            return self.original.read(name)
        parts = [self.original.read(info.name) for info in self.bundles[name]]
        size = sum(part.size for part in parts)
        info = _bundle_info(name, self.bundles[name])
        return np.concatenate([*parts, np.zeros(info.nbytes - size, np.uint8)])

    def reference(self, name: str, grid: ChunkGrid) -> np.ndarray | None:
        """Return the reference of a tensor or bundle, in its grid's shape, if any."""
        if not self.references.matches:
            return None
        return self.references.read(name, grid, self.bundles.get(name, ()))

    def base_records(self, tensors: Mapping[str, TensorRecord]) -> tuple[BaseRecord, ...]:
        """Return the records of the bases that tensors are coded against."""
        return self.references.records(tensors) if self.references.matches else ()

    @functools.cached_property
    def _roles(self) -> Mapping[str, str]:
        return roles_of(self.original.tensors)

    def planned_given(
        self, name: str, array: np.ndarray, reference: np.ndarray | None, effort: str
    ) -> TensorPlan | None:
        """Return the plan of a tensor or bundle, once its reference is known."""
        plan = self.planned(name)
        if self.plan_given is None or name in self.bundles:
            return plan
        return self.plan_given(plan, self._roles[name], array, reference, effort=effort)

    def prune(self, name: str) -> PrunedTensor | None:
        """Return a tensor after pruning; None if it is not selected for that."""
        if name in self.bundles or not isinstance(self.original, PrunedCheckpoint):
            return None
        return self.original.prune(name)


def bundled(
    source: Checkpoint,
    plan: Plan | None,
    chunk_elements: int,
    references: References = NO_REFERENCES,
) -> BundledSource:
    """Return a view of a source with its small lossless tensors in bundles.

    A bundle is a chunk at most.

    No plan means the lossless planner's choice everywhere.
    """
    taken = {info.name for info in source.tensors} | source.aliases.keys()
    by_dtype: dict[str, list[TensorInfo]] = {}
    for info in source.tensors:
        if _may_be_bundled(source, plan, info):
            by_dtype.setdefault(info.dtype, []).append(info)
    bundles: dict[str, Sequence[TensorInfo]] = {}
    same_as: dict[str, str] = {}
    for dtype, infos in by_dtype.items():
        different, equal = _distinct(source, infos)
        same_as |= equal
        if len(different) < _MIN_TENSORS:
            continue
        most = min(_MAX_ELEMENTS, chunk_elements) - ROW
        batches = runs(different, lambda info: math.prod(info.shape), most)
        for number, members in enumerate(batches):
            name = f"small tensors.{dtype}.{number}"
            while name in taken:
                name += "'"
            bundles[name] = members
    inside = {info.name for members in bundles.values() for info in members} | same_as.keys()
    alone = [info for info in source.tensors if info.name not in inside]
    together = [_bundle_info(name, members) for name, members in bundles.items()]
    tensors = (*together, *alone)
    return BundledSource(source, plan, chunk_elements, tensors, bundles, same_as, references)


def _may_be_bundled(source: Checkpoint, plan: Plan | None, info: TensorInfo) -> bool:
    dtype = numpy_dtype(info.dtype)
    if dtype is None or not 0 < info.nbytes <= _SMALL * dtype.itemsize:
        return False
    if plan is not None and plan.tensors[info.name].tree is not None:
        return False
    return not (isinstance(source, PrunedCheckpoint) and source.is_selected(info.name))


def _distinct(
    source: Checkpoint, infos: Sequence[TensorInfo]
) -> tuple[list[TensorInfo], dict[str, str]]:
    """Return the tensors that equal no earlier one, and which one others equal."""
    first_with: dict[tuple[int, int], str] = {}
    different, equal = [], {}
    for info in infos:
        data = source.read(info.name)
        first = first_with.setdefault((info.nbytes, xxhash.xxh3_64_intdigest(data)), info.name)
        if first != info.name and np.array_equal(source.read(first), data):
            equal[info.name] = first
        else:
            different.append(info)
    return different, equal


def _bundle_info(name: str, members: Sequence[TensorInfo]) -> TensorInfo:
    """Return a bundle as a tensor, of rows enough for all its members."""
    first = members[0]
    rows = -(-sum(math.prod(info.shape) for info in members) // ROW)
    nbytes = rows * ROW * first.nbytes // math.prod(first.shape)
    return TensorInfo(name, first.dtype, (rows, ROW), nbytes)


Item = TypeVar("Item")


def runs(
    items: Iterable[Item], size: Callable[[Item], int], most: int, number: int | None = None
) -> Iterator[list[Item]]:
    """Group consecutive items into batches of bounded size and number."""
    run: list[Item] = []
    total = 0
    for item in items:
        added = size(item)
        if run and (total + added > most or len(run) == number):
            yield run
            run, total = [], 0
        run.append(item)
        total += added
    if run:
        yield run
