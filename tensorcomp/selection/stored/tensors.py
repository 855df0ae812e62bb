"""Choose the tensors of stored checkpoints to prune; find equal ones.

Several files are one model: their tensors are selected together, under names that are theirs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import xxhash

from tensorcomp._formatting import listed
from tensorcomp.checkpoints.base import Checkpoint, TensorInfo
from tensorcomp.codecs.rounding import is_real
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.errors import PruningError
from tensorcomp.planning.profiles import COMPUTED, EVERYTHING
from tensorcomp.planning.roles.classify import (
    NEVER_PRUNED,
    ORIGINAL,
    USUAL,
    is_mask,
    mask_of,
    protected_by_value,
    roles_of,
    selects,
    taken_and_left_out,
)
from tensorcomp.selection.streaming_scores import LazyArrays

_LOOK_BYTES = 256  # at both ends of a tensor, where most differ from each other


@dataclass(frozen=True, slots=True)
class Chosen:
    """One tensor that is to be pruned, and the file that holds it."""

    key: str  # its name among the tensors of all files
    source: Checkpoint
    info: TensorInfo
    names: tuple[str, ...]  # in the file, further ones of tied weights among them
    mask: Callable[[], np.ndarray] | None = None  # by which it is multiplied where it is used

    def read(self) -> np.ndarray:
        """Return its weights, of its shape; a view of the file where that allows it."""
        dtype = numpy_dtype(self.info.dtype)
        assert dtype is not None
        return self.source.read(self.info.name).view(dtype).reshape(self.info.shape)


def choose(
    sources: Sequence[Checkpoint],
    keys: Sequence[Mapping[str, str]],
    where: Sequence[str] | None,
) -> list[Chosen]:
    """Return the tensors that selectors name, in the order of the files.

    Only floats are taken.

    Parameters
    ----------
    sources : sequence of Checkpoint
    keys : sequence of mapping of str to str
        For each source, what its tensors are called among those of all.
    where : sequence of str, optional
        Roles, names, patterns of names, ``all`` but computed tables, or all but what stands after
        ``!`` (see `planning.roles.classify`); by default the matrices and kernels of layers.
        Masks and codebooks are never taken.
    """
    taken, but = taken_and_left_out(where or (), USUAL)
    if where is None:
        taken = list(USUAL)
    everywhere = {name: mask for source in sources for name, mask in _masks(source).items()}
    used: set[str] = set()
    chosen: list[Chosen] = []
    for source, names in zip(sources, keys, strict=True):
        roles = roles_of(source.tensors)
        tied: dict[str, list[str]] = {}
        masks = everywhere | _masks(source)
        for alias, name in source.aliases.items():
            tied.setdefault(name, []).append(alias)
        for info in source.tensors:
            own, key = (info.name, *tied.get(info.name, ())), names[info.name]
            mask = masks.get(mask_of(info.name))
            item, role = Chosen(key, source, info, own), roles[info.name]
            if mask is not None and mask.info.shape == info.shape:
                own = (*own, info.name.removesuffix(ORIGINAL))
                item = replace(item, names=own, mask=mask.read)
            if not _may_be_pruned(info, role):
                continue
            asked = [s for s in taken if s != EVERYTHING or role not in COMPUTED]
            called = {key, *own}
            found, left_out = (
                [one for one in some if any(selects(one, name, role) for name in called)]
                for some in (asked, but)
            )
            used.update(found, left_out)
            is_named = not called.isdisjoint(found)
            if found and not left_out and not _is_exact(item.read(), role, is_named=is_named):
                chosen.append(item)
    _require_used([*taken, *but], used, where)
    if not chosen:
        raise PruningError(f"where={listed(where or ())} leaves no tensor to prune")
    return chosen


def _masks(source: Checkpoint) -> dict[str, Chosen]:
    return {
        info.name: Chosen("", source, info, ())
        for info in source.tensors
        if info.name.endswith("_mask")
    }


def masks_of(chosen: Sequence[Chosen]) -> dict[str, Callable[[], np.ndarray]]:
    """Return what reads the mask of each tensor that has one, by key."""
    return {item.key: item.mask for item in chosen if item.mask is not None}


def _may_be_pruned(info: TensorInfo, role: str) -> bool:
    """Return whether a tensor holds weights: floats of a type that has a zero."""
    dtype = numpy_dtype(info.dtype)
    real = dtype is not None and is_real(dtype) and 0 not in info.shape
    return real and role not in NEVER_PRUNED


def _is_exact(array: np.ndarray, role: str, *, is_named: bool) -> bool:
    """Return whether values are a mask's, or computed and not asked for by name."""
    return is_mask(array) if is_named else bool(protected_by_value(array, role))


def _require_used(selectors: Sequence[str], used: set[str], where: Sequence[str] | None) -> None:
    if where is None and not used:
        raise PruningError("there is no matrix or kernel of a layer; say what is by 'where'")
    unused = [selector for selector in selectors if selector not in used]
    if where is not None and unused:
        never = " and ".join(f"{role}s" for role in NEVER_PRUNED)
        raise PruningError(
            f"where={listed(unused)} selects no tensor of floats; {never} are never pruned"
        )
    if where is not None and not selectors:
        raise PruningError("where selects nothing: it is empty")


def unique_weights(
    chosen: Sequence[Chosen], apart: Collection[str] = ()
) -> tuple[LazyArrays, dict[str, str]]:
    """Return the weights to score, of equal tensors once.

    And the key of each tensor's weights.

    Tied weights that a file holds twice are one weight. The one that comes first is pruned, and the
    others as it is; those of the keys `apart` are pruned by themselves, equal to others or not.
    """
    first_with: dict[tuple[str, tuple[int, ...], int], list[Chosen]] = {}
    weights, keys = {}, {}
    for item in sorted(chosen, key=lambda item: (item.key not in apart, item.key)):
        data = item.source.read(item.info.name)
        ends = xxhash.xxh3_64_intdigest(
            data[:_LOOK_BYTES].tobytes() + data[-_LOOK_BYTES:].tobytes()
        )
        alike = first_with.setdefault((item.info.dtype, item.info.shape, ends), [])
        for other in alike if item.key not in apart else ():
            if np.array_equal(other.source.read(other.info.name), data):
                keys[item.key] = other.key
                break
        else:
            alike.append(item)
            weights[item.key], keys[item.key] = item.read, item.key
    return LazyArrays(weights), keys
