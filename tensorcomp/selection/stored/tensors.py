"""Choose the tensors of stored checkpoints to prune; find equal ones.

Several files are one model: their tensors are selected together, under names that are theirs alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tensorcomp._formatting import listed
from tensorcomp.checkpoints.base import Checkpoint, TensorInfo
from tensorcomp.codecs.rounding import is_real
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.errors import PruningError
from tensorcomp.planning.profiles import Rule
from tensorcomp.planning.roles.classify import roles_of
from tensorcomp.selection.streaming_scores import LazyArrays

USUAL = ("linear", "conv")
_LOOK_BYTES = 256  # at both ends of a tensor, where most differ from each other


@dataclass(frozen=True)
class Chosen:
    """One tensor that is to be pruned, and the file that holds it."""

    key: str  # its name among the tensors of all files
    source: Checkpoint
    info: TensorInfo
    names: tuple[str, ...]  # in the file, further ones of tied weights among them

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
        Roles, names, patterns of names, or ``all`` (see `planning.profiles`); by default the
        matrices and kernels of layers.
    """
    rules = [Rule(selector, "") for selector in (USUAL if where is None else where)]
    used: set[str] = set()
    chosen: list[Chosen] = []
    for source, names in zip(sources, keys, strict=True):
        roles = roles_of(source.tensors)
        tied: dict[str, list[str]] = {}
        for alias, name in source.aliases.items():
            tied.setdefault(name, []).append(alias)
        for info in source.tensors:
            if not _may_be_pruned(info):
                continue
            own = (info.name, *tied.get(info.name, ()))
            role = roles[info.name]
            key = names[info.name]
            called = {key, *own}
            found = [r.selector for r in rules if any(r.selects(name, role) for name in called)]
            if found:
                used.update(found)
                chosen.append(Chosen(key, source, info, own))
    _require_used(rules, used, where)
    return chosen


def _may_be_pruned(info: TensorInfo) -> bool:
    """Return whether a tensor holds floats of a type that has a zero."""
    dtype = numpy_dtype(info.dtype)
    return dtype is not None and is_real(dtype) and 0 not in info.shape


def _require_used(rules: Sequence[Rule], used: set[str], where: Sequence[str] | None) -> None:
    if where is None and not used:
        raise PruningError("there is no matrix or kernel of a layer; say what is by 'where'")
    unused = [rule.selector for rule in rules if rule.selector not in used]
    if where is not None and unused:
        raise PruningError(f"where={listed(unused)} selects no tensor of floats")
    if where is not None and not rules:
        raise PruningError("where selects nothing: it is empty")


def unique_weights(
    chosen: Sequence[Chosen], apart: Collection[str] = ()
) -> tuple[LazyArrays, dict[str, str]]:
    """Return the weights to score, of equal tensors once.

    And the key of each tensor's weights.

    Tied weights that a file holds twice are one weight. The one that comes first is pruned, and the
    others as it is; those of the keys `apart` are pruned by themselves, equal to others or not.
    """
    first_with: dict[tuple[str, tuple[int, ...], bytes], list[Chosen]] = {}
    weights, keys = {}, {}
    for item in sorted(chosen, key=lambda item: (item.key not in apart, item.key)):
        data = item.source.read(item.info.name)
        ends = data[:_LOOK_BYTES].tobytes() + data[-_LOOK_BYTES:].tobytes()
        alike = first_with.setdefault((item.info.dtype, item.info.shape, ends), [])
        for other in alike if item.key not in apart else ():
            if np.array_equal(other.source.read(other.info.name), data):
                keys[item.key] = other.key
                break
        else:
            alike.append(item)
            weights[item.key], keys[item.key] = item.read, item.key
    return LazyArrays(weights), keys
