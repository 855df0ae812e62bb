"""Divide parameters into shards, each of which one rank owns and reduces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Compressor, GradientSpec
from tensorcomp.gradients.compressors.dense import Dense
from tensorcomp.gradients.compressors.tree_compressor import TreeCompressor
from tensorcomp.gradients.ddp.coding_groups import CodingGroup, indices_of
from tensorcomp.gradients.ddp.reduce_context import GroupWork, ReduceContext
from tensorcomp.gradients.payload.decoded import DecodedGradient
from tensorcomp.gradients.wrappers.base import chain, leaf_of
from tensorcomp.gradients.wrappers.feedback import ErrorFeedback

ALIGNMENT = 128
WHOLE = 4096
MEAN_OF = "mean of "  # before a parameter's name: the state of the means that a shard's owner sends


def partition(sizes: Mapping[str, int], world: int) -> dict[str, tuple[int, ...]]:
    """Divide the elements of a model's parameters among ranks evenly.

    It depends on the parameters and the number of ranks alone, not on buckets: states of shards
    stay where they are when buckets are built anew. Parameters of fewer than `WHOLE` elements have
    one owner. Larger ones are cut at multiples of `ALIGNMENT` elements, into shards that differ by
    that at most (the last one holds less than a multiple). Whoever owns least gets the rest.

    Parameters
    ----------
    sizes : mapping of str to int
        Elements of each parameter, in the same order on all ranks.
    world : int
        Ranks, W.

    Returns
    -------
    dict of str to tuple of int
        For each parameter W + 1 ascending bounds, the first 0 and the last its elements: rank r
        owns the elements from the r-th to the next, which may be none.
    """
    if world < 1:
        raise GradientError(f"expected at least 1 rank to own gradients, got {world}")
    loads = [0] * world
    bounds = {}
    for name, size in sizes.items():
        blocks = -(-size // ALIGNMENT)
        each, more = divmod(0 if size < WHOLE else blocks, world)
        counts = [each] * world
        if size < WHOLE:
            counts[min(range(world), key=loads.__getitem__)] = blocks
        else:
            for owner in sorted(range(world), key=loads.__getitem__)[:more]:
                counts[owner] += 1
        ends = [0]
        for owner, count in enumerate(counts):
            ends.append(min(size, ends[-1] + count * ALIGNMENT))
            loads[owner] += ends[-1] - ends[-2]
        bounds[name] = tuple(ends)
    return bounds


@dataclass(frozen=True, eq=False)
class Shard:
    """Locate the elements of a coding group that one rank owns.

    Parameters
    ----------
    owner : int
    spec : GradientSpec
        Flat (m,), as this rank compresses it.
    where : slice or numpy.ndarray
        The indices of its elements in the group (`coding_groups.indices_of`).
    mean : CodingGroup
        What the owner compresses the mean as: its parts are those owned of parameters, named
        `MEAN_OF` and the parameter's name.
    """

    owner: int
    spec: GradientSpec
    where: slice | np.ndarray
    mean: CodingGroup


def shards_of(group: CodingGroup, bounds: Mapping[str, tuple[int, ...]]) -> tuple[Shard, ...]:
    """Return the non-empty shards of a group by owner, worked out once."""
    known: tuple[Shard, ...] | None = group.cached.get("shards")
    if known is None:
        mean = compressor_of_means(group.compressor)
        known = group.cached["shards"] = _cut(group, bounds, mean)
    return known


def _cut(
    group: CodingGroup, bounds: Mapping[str, tuple[int, ...]], compressor: Compressor
) -> tuple[Shard, ...]:
    """Return the shards of a group, whose means are compressed by a compressor."""
    shards = []
    for owner in range(len(bounds[group.key[0]]) - 1):
        places, parts, start = [], [], 0
        for one in group.parts:
            first, end = bounds[one.name][owner : owner + 2]
            if end > first:
                places.append(slice(start + first, start + end))
                shape = (end - first,)
                parts.append(replace(one, name=MEAN_OF + one.name, shape=shape, worker=owner))
            start += one.size
        if places:
            shape = (sum(one.size for one in parts),)
            spec = replace(group.spec, name=f"{group.spec.name}, part {owner}", shape=shape)
            name = parts[0].name if len(parts) == 1 else MEAN_OF + spec.name
            mean = CodingGroup(replace(spec, name=name, worker=owner), compressor, tuple(parts))
            shards.append(Shard(owner, spec, indices_of(places), mean))
    return tuple(shards)


def compressor_of_means(compressor: Compressor) -> Compressor:
    """Return what the owner of a shard compresses means with.

    The same leaf, with error feedback if the workers have it, or if what it leaves out is not zero
    on average: all ranks miss what an owner leaves out, and nobody else could send it later.
    """
    leaf = leaf_of(compressor)
    feedback = next((one for one in chain(compressor) if isinstance(one, ErrorFeedback)), None)
    lossless = isinstance(leaf, Dense) or (isinstance(leaf, TreeCompressor) and leaf.tree.lossless)
    if lossless or (feedback is None and leaf.unbiased):
        return leaf
    return ErrorFeedback(leaf) if feedback is None else replace(feedback, inner=leaf)


def return_residuals(works: Sequence[GroupWork], context: ReduceContext) -> None:
    """Add shards' residuals to gradients no longer reduce-scattered.

    All ranks miss what an owner left out, so it counts once for each of them. The states are gone
    once the step is done.
    """
    for work in works:
        group = work.group
        if work.silent or not any(context.states.holds(MEAN_OF + name) for name in group.key):
            continue
        for shard in _cut(group, context.bounds, ErrorFeedback(Dense())):
            if shard.owner == group.spec.worker:
                state: Any = context.states.state(shard.mean)
                flat = work.gradient.reshape(-1)
                residual = context.comm.world * state.residual.astype(group.spec.dtype)
                flat[shard.where] += (
                    residual if isinstance(flat, np.ndarray) else flat.new_tensor(residual)
                )
                context.states.stage(shard.mean, None)


@dataclass(frozen=True)
class ShardedGradient(DecodedGradient):
    """Hold what was sent of a group, shard by shard."""

    shards: tuple[tuple[Shard, DecodedGradient], ...]

    @property
    def count(self) -> int:
        """Return the elements of all shards that are not left out."""
        return sum(one.count for _, one in self.shards)

    def add_to(self, out: np.ndarray, factor: float) -> None:
        """Add all shards."""
        self._change(out, lambda one, values: one.add_to(values, factor))

    def subtract_from(self, values: np.ndarray) -> None:
        """Subtract all shards."""
        self._change(values, lambda one, part: one.subtract_from(part))

    def clear(self, values: np.ndarray) -> None:
        """Set to zero what was sent of all shards."""
        self._change(values, lambda one, part: one.clear(part))

    def _change(
        self, values: np.ndarray, change: Callable[[DecodedGradient, np.ndarray], None]
    ) -> None:
        for shard, one in self.shards:
            taken = values[shard.where]  # a view, or a copy
            change(one, taken)
            if not isinstance(shard.where, slice):
                values[shard.where] = taken
