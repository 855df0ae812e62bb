"""Divide a bucket into coding groups, each compressed as one tensor.

A group is a parameter, or all small parameters of a bucket that share a compressor: one payload
then costs one index, and one call. Where a bucket's layout changes, groups change and states follow
the parameters' names (`state_store`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress, pairwise
from typing import Any

import numpy as np
import torch
import xxhash

from tensorcomp.gradients.base import Compressor, GradientSpec, Reduction
from tensorcomp.gradients.compressors.dense import Dense
from tensorcomp.gradients.compressors.error_bounded import ErrorBounded
from tensorcomp.gradients.compressors.powersgd import PowerSgd
from tensorcomp.gradients.compressors.tree_compressor import TreeCompressor
from tensorcomp.gradients.cuda.on_device import on_device
from tensorcomp.gradients.text import label
from tensorcomp.gradients.wrappers.base import chain, leaf_of
from tensorcomp.gradients.wrappers.feedback import ErrorFeedback
from tensorcomp.gradients.wrappers.reduce_scatter import ReduceScatter

SMALL = 4096  # elements: fewer are joined with others
_RIDING = 1 << 16  # bytes of dense gradients that go with others' payloads


def indices_of(places: Sequence[slice]) -> slice | np.ndarray:
    """Return the indices of several places: a slice if they follow each other."""
    if all(one.stop == other.start for one, other in pairwise(places)):
        return slice(places[0].start, places[-1].stop)
    return np.concatenate([np.arange(one.start, one.stop) for one in places])


@dataclass(frozen=True)
class CodingGroup:
    """Describe what is compressed as one tensor.

    Parameters
    ----------
    spec : GradientSpec
        Of one parameter, or of several as one flat vector.
    compressor : Compressor
        Concrete: no scheduler is left in it.
    parts : tuple of GradientSpec
        Of each parameter; their elements are the group's, back to back.
    where : slice or numpy.ndarray
        The indices of its elements in the buffer: a slice if no other parameters lie between.
    native : Compressor or None
        The compressor's counterpart for tensors on the bucket's device, if it is compressed there.
    """

    spec: GradientSpec
    compressor: Compressor
    parts: tuple[GradientSpec, ...]
    where: slice | np.ndarray = field(default_factory=lambda: slice(None), compare=False)
    native: Compressor | None = None

    @property
    def codec(self) -> Compressor:
        """Return what is stepped: the native compressor, or else the compressor."""
        return self.compressor if self.native is None else self.native

    @cached_property
    def key(self) -> tuple[str, ...]:
        """Return the parameters' names."""
        return tuple(one.name for one in self.parts)

    @cached_property
    def label(self) -> str:
        """Return the compressor's text as people read it."""
        return label(self.compressor)

    @cached_property
    def line(self) -> str:
        """Return what ranks must have alike to decode each other."""
        shapes = ", ".join(f"{one.name}{list(one.shape)}" for one in self.parts)
        return f"{shapes} of {self.spec.dtype} by {self.compressor.text()}"

    @cached_property
    def cached(self) -> dict[Any, Any]:
        """Return what reductions work out once for a group."""
        return {}


@dataclass(frozen=True)
class Layout:
    """Hold the groups of a bucket.

    It is lossy if packet loss is simulated: all but sums is reduce-scattered then.
    """

    groups: tuple[CodingGroup, ...]
    lossy: bool = False

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """Return what ranks must have alike, a line for each group."""
        return tuple(group.line for group in self.groups)

    @cached_property
    def schema(self) -> int:
        """Return the hash of `lines`."""
        return xxhash.xxh3_64_intdigest("\n".join(self.lines).encode())

    @cached_property
    def native(self) -> bool:
        """Return whether the groups are compressed on the bucket's device."""
        return bool(self.groups) and all(group.native is not None for group in self.groups)

    @cached_property
    def routes(self) -> dict[Reduction, tuple[int, ...]]:
        """Return the places in `groups` that are reduced in each way.

        A few dense ones go with gathered payloads: another collective would cost more.
        """
        ways = [group.compressor.reduction for group in self.groups]
        dense = [isinstance(leaf_of(group.compressor), Dense) for group in self.groups]
        riding = sum(group.spec.nbytes for group in compress(self.groups, dense)) < _RIDING
        if self.lossy:
            ways = [
                "sum" if way == "sum" and not own else "reduce_scatter"
                for way, own in zip(ways, dense, strict=True)
            ]
        elif riding and "gather" in ways:
            ways = ["gather" if own else way for way, own in zip(ways, dense, strict=True)]
        found: dict[Reduction, list[int]] = {"gather": [], "reduce_scatter": [], "sum": []}
        for index, way in enumerate(ways):
            found[way].append(index)
        return {way: tuple(indices) for way, indices in found.items() if indices}


def lay_out(
    specs: Sequence[GradientSpec],
    compressors: Sequence[Compressor],
    *,
    join_small: bool,
    device: torch.device | None = None,
    saved: Sequence[tuple[str, ...]] = (),
    lossy: bool = False,
) -> Layout:
    """Return the groups of a bucket.

    Parameters
    ----------
    specs : sequence of GradientSpec
        Of all parameters, in the order of the buffer.
    compressors : sequence of Compressor
        Of each, concrete.
    join_small : bool
        Whether parameters of fewer than `SMALL` elements with equal compressors become one group.
    device : torch.device, optional
        Where gradients are, if not on the host. Payloads that are all gathered are compressed there
        if each compressor has its counterpart there; otherwise the bucket is copied to the host.
    saved : sequence of tuple of str
        Names of parameters that become one group where all of them are in this bucket: those of an
        earlier run, so that it goes on bit for bit while its buckets are not there yet.
    lossy : bool
        As of `Layout`.
    """
    left = {one.name: (one, by) for one, by in zip(specs, compressors, strict=True)}
    groups: list[tuple[Compressor, list[GradientSpec]]] = []
    for names in saved if join_small else ():
        found = [left[name] for name in names if name in left]
        if len(found) == len(names) and all(
            compressor == found[0][1] and may_join(one, compressor) for one, compressor in found
        ):
            groups.append((found[0][1], [left.pop(name)[0] for name in names]))
    growing: list[tuple[Compressor, list[GradientSpec]]] = []
    for one, compressor in left.values():
        joins = join_small and may_join(one, compressor)
        group = next((g for g in growing if joins and g[0] == compressor), None)
        if group is None:
            group = (compressor, [])
            groups.append(group)
            growing += [group] if joins else []
        group[1].append(one)
    stops = np.cumsum([one.size for one in specs]).tolist()
    places = {one.name: slice(end - one.size, end) for one, end in zip(specs, stops, strict=True)}
    groups.sort(key=lambda group: places[group[1][0].name].start)
    made = []
    for compressor, parts in groups:
        spec = parts[0]
        if len(parts) > 1:
            size = sum(one.size for one in parts)
            name = f"{spec.name} and {len(parts) - 1} more"
            spec = GradientSpec(name, (size,), spec.dtype, "", spec.worker)
        where = indices_of([places[one.name] for one in parts])
        made.append(CodingGroup(spec, compressor, tuple(parts), where))
    layout = Layout(tuple(made), lossy)
    if device is None or lossy or set(layout.routes) != {"gather"}:
        return layout
    there = Layout(tuple(replace(one, native=on_device(one.compressor, device)) for one in made))
    return there if there.native else layout


def parts_of(layout: Layout, values: np.ndarray) -> Iterator[tuple[GradientSpec, np.ndarray]]:
    """Yield each parameter of a bucket with its values."""
    for group in layout.groups:
        ends = np.cumsum([one.size for one in group.parts])
        for one, flat in zip(group.parts, np.split(values[group.where], ends[:-1]), strict=True):
            yield one, flat.reshape(one.shape)


def may_join(one: GradientSpec, compressor: Compressor) -> bool:
    """Return whether a parameter may be compressed together with others.

    Large ones may not, nor those of a compressor that minds the tensor's shape, promises something
    of each tensor, clips by its norm, or would send something for a parameter of zeros.
    """
    if not 0 < one.size < SMALL:
        return False
    if any(getattr(one, "clip", None) is not None for one in chain(compressor)):
        return False
    leaf = leaf_of(compressor)
    if isinstance(leaf, TreeCompressor) and any(c.zeros == "lost" for c in leaf.tree.walk()):
        return False
    return not isinstance(leaf, ErrorBounded | PowerSgd)


def is_plain(compressor: Compressor) -> bool:
    """Return whether a compressor sends gradients unchanged, residuals aside."""
    *wrappers, leaf = chain(compressor)
    return isinstance(leaf, Dense) and all(
        isinstance(one, ErrorFeedback | ReduceScatter) for one in wrappers
    )
