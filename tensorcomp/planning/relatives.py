"""Find which checkpoints of many are relatives, by sketches of their values.

A sketch holds a few values of the largest tensors, read from both ends of each. What one checkpoint
costs, given another as its base, is estimated by the bits of the differences between these values,
as integers in the order of floats: 0 where a bf16 tensor is the rounded float32 one, 16 the other
way. The estimate only picks a base; what is stored is chosen by measured bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import xxhash

from tensorcomp.checkpoints.base import Checkpoint, TensorInfo
from tensorcomp.dtypes import dtype_bits, holds_floats, numpy_dtype

MAX_DEPTH = 16  # bases of bases
MAX_COST = (
    0.9  # of the bits that a checkpoint takes alone: above it a base is not worth its keeping
)
_TENSORS, _VALUES = 16, 16  # of a checkpoint; of each end of a tensor
_CANDIDATES = 256  # bases that a checkpoint is compared with
_FAMILIES = 32  # unrelated ones of the same shapes, from which on the given order is kept
_TIE, _TIES = 0.005, 6  # by which costs may differ that count as equal, and how many may
_TAIL = 4  # parts of a name that stay where tensors are renamed by a prefix
# Bits by which mantissas are shorter than float32's.
_SHIFTS = {"BF16": 16, "F16": 13, "F8_E4M3": 20, "F8_E5M2": 21}


@dataclass(frozen=True, eq=False)
class Sketch:
    """Values of the largest tensors of a checkpoint, by hashes of their names.

    Parameters
    ----------
    names, shapes : numpy.ndarray
        Uint64 (T,): hashes; of a shape without the rows, which vocabularies gain.
    values : numpy.ndarray
        Int64 (T, values): floats as those of float32, in their order; else bytes.
    shifts : numpy.ndarray
        Int64 (T, 1): bits by which the mantissa is shorter than float32's.
    alone : numpy.ndarray
        Float64 (T,): bits of a value without a base.
    weights : numpy.ndarray
        Float64 (T,): elements.
    """

    names: np.ndarray
    shapes: np.ndarray
    values: np.ndarray
    shifts: np.ndarray
    alone: np.ndarray
    weights: np.ndarray

    @functools.cached_property
    def key(self) -> bytes:
        """Names and shapes together."""
        return self.names.tobytes() + self.shapes.tobytes()


def sketch(source: Checkpoint) -> Sketch:
    """Return the sketch of an open checkpoint, of which little is read.

    Parameters
    ----------
    source : Checkpoint

    Returns
    -------
    Sketch
        Of no tensors, where it has none with elements.
    """
    # The last parts of names choose among tensors of one size: of shards the same as of one file.
    tails = {i: _hash(".".join(i.name.split(".")[-_TAIL:])) for i in source.arrays if i.nbytes}
    chosen = sorted(tails, key=lambda i: (-i.nbytes, tails[i]))[:_TENSORS]
    chosen.sort(key=lambda i: _hash(i.name))
    values = np.array([_values(i, source.ends(i.name)) for i in chosen], np.int64)
    values = values.reshape(-1, 2 * _VALUES)
    shifts = np.array([_SHIFTS.get(i.dtype, 0) for i in chosen], np.int64).reshape(-1, 1)
    return Sketch(
        names=np.array([_hash(i.name) for i in chosen], np.uint64),
        shapes=np.array([_hash(str(i.shape[len(i.shape) > 1 :])) for i in chosen], np.uint64),
        values=values,
        shifts=shifts,
        alone=1 + _bits(values, np.roll(values, 1, axis=-1), shifts),
        weights=np.array([8 * i.nbytes / (dtype_bits(i.dtype) or 8) for i in chosen]),
    )


def costs(checkpoint: Sketch, bases: Sequence[Sketch]) -> np.ndarray:
    """Return what a checkpoint costs, given each of several bases.

    Tensors are compared by their names, those that have other names by their shapes.

    Returns
    -------
    numpy.ndarray
        Float64, as parts of what it costs alone, about 1 for strangers.
    """
    bits = np.tile(checkpoint.alone, (len(bases), 1))
    alike = [n for n, base in enumerate(bases) if base.key == checkpoint.key]
    if alike:  # all at once
        others = np.stack([bases[n].values for n in alike])
        bits[alike] = _bits(checkpoint.values, others, checkpoint.shifts)
    for n in set(range(len(bases))).difference(alike):
        same = checkpoint.shapes[:, None] == bases[n].shapes
        named = same & (checkpoint.names[:, None] == bases[n].names)
        same = np.where(named.any(axis=1, keepdims=True), named, same)
        pairs = _bits(checkpoint.values[:, None], bases[n].values, checkpoint.shifts[:, None])
        bits[n] = np.where(same, pairs, np.inf).min(axis=1, initial=np.inf)
    weights, alone = checkpoint.weights, checkpoint.alone
    found: np.ndarray = np.minimum(bits, alone) @ weights / (alone @ weights or 1)
    return found if alone.size else found + 1


def nearest(checkpoint: Sketch, bases: Sequence[Sketch]) -> int | None:
    """Return the index of the best base; None where none is a relative.

    Parameters
    ----------
    checkpoint : Sketch
    bases : sequence of Sketch
        The first of those that are as good is taken.
    """
    found = costs(checkpoint, bases)
    return int(found.argmin()) if found.min(initial=1) <= MAX_COST else None


def choose_bases(
    sketches: Sequence[Sketch],
    pick: Callable[[int, Sequence[int]], int] = lambda _, ties: ties[0],
    max_depth: int = MAX_DEPTH,
) -> dict[int, int | None]:
    """Return the base of each checkpoint, if it has one, bases first.

    Of relatives the one in their midst is stored alone, and the others next to it are coded
    against it, or against what is nearer: a star, where all are its fine-tunes.

    Parameters
    ----------
    sketches : sequence of Sketch
    pick : callable, optional
        Returns the best of several bases of a checkpoint that seem to be as good: of low rank, say,
        a difference is small that a sketch does not tell from others. By default the first, which
        has the fewest bases.
    max_depth : int
        Bases that must be decoded for a checkpoint, at most.
    """
    families: dict[tuple[float, int, bytes], list[int]] = {}  # large ones, wide types first
    for index, one in enumerate(sketches):
        order = -float(one.weights.sum()), int(one.shifts.sum()), one.key + one.shifts.tobytes()
        families.setdefault(order, []).append(index)
    chosen: dict[int, int | None] = {}
    depths: dict[int, int] = {}
    used: dict[int, None] = {}  # the last one last
    for _, members in sorted(families.items()):
        for index in _ordered(sketches, members):
            recent = dict.fromkeys([*used][-_CANDIDATES // 2 :] + [*chosen][-_CANDIDATES // 2 :])
            able = sorted(recent, key=depths.__getitem__)
            cost = costs(sketches[index], [sketches[n] for n in able])
            # A copy, such as one of a shorter type, may be one deeper than the end of a chain.
            may = [depths[n] + (c > 0) < max_depth for n, c in zip(able, cost, strict=True)]
            ties = _ties(cost, np.where(may, cost, np.inf), max_depth)
            base = pick(index, [able[n] for n in ties]) if len(ties) > 1 else None
            base = able[ties[0]] if len(ties) == 1 else base
            chosen[index], depths[index] = base, 0 if base is None else depths[base] + 1
            used.pop(last := index if base is None else base, None)
            used[last] = None
    return chosen


def _ties(cost: np.ndarray, able: np.ndarray, max_depth: int) -> list[int]:
    """Return which bases may be the best one, by their costs; `able` is inf of those too deep.

    Where those are far nearer, a chain is begun anew, from the shallowest relative.
    """
    least = able.min(initial=1)
    if least > MAX_COST:
        return []
    if (least - cost.min()) * max_depth > 1 - least:
        return [int(np.argmax(able <= MAX_COST))]
    order = np.argsort(able, kind="stable")[: _TIES if least else 1]
    return sorted(int(n) for n in order if able[n] <= min(least + _TIE, MAX_COST))


def _ordered(sketches: Sequence[Sketch], members: Sequence[int]) -> Iterator[int]:
    """Yield checkpoints of the same shapes and types: the midst of relatives, then the others."""
    for _ in range(_FAMILIES if len(members) > 1 else 0):
        values = np.stack([sketches[n].values for n in members])
        first, middle = sketches[members[0]], np.median(values, axis=0).astype(np.int64)
        apart = _bits(middle, values, first.shifts) @ first.weights
        root = members[int(apart.argmin())]
        yield root
        cost = {n: float(costs(sketches[n], [sketches[root]])[0]) for n in members if n != root}
        members = [n for n in cost if cost[n] > MAX_COST]
        yield from sorted(cost.keys() - set(members), key=lambda n: (cost[n], n))
        if not members:
            return
    yield from members


def _bits(values: np.ndarray, others: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    """Return the mean bits of differences along the last axis, in steps of the first's dtype."""
    halves = (1 << shifts >> 1) - (shifts > 0)  # ties of rounding to the shorter type are equal
    found: np.ndarray = np.log2(1 + (np.abs(values - others) + halves >> shifts)).mean(axis=-1)
    return found


def _values(info: TensorInfo, ends: bytes) -> np.ndarray:
    """Return the first and last values of a tensor as integers, repeated where it is short."""
    dtype = numpy_dtype(info.dtype)
    is_float = dtype is not None and holds_floats(dtype)
    first, last = np.frombuffer(ends, dtype if is_float else np.uint8).reshape(2, -1)
    both = np.concatenate(
        [np.resize(first[:_VALUES], _VALUES), np.resize(last[-_VALUES:], _VALUES)]
    )
    if not is_float:
        return both
    with np.errstate(all="ignore"):  # values that are not finite, or too large
        bits = both.astype(np.float32).view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


@functools.lru_cache(1 << 16)
def _hash(text: str) -> int:
    digest: int = xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))
    return digest
