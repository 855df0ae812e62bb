"""Who reduces what: every parameter is cut into parts, and every part has an owner."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Compressor, GradientSpec
from tensorcomp.gradients.ddp.coding_groups import Piece, Unit
from tensorcomp.gradients.payload.decoded import DecodedGradient

ALIGNMENT = 128
WHOLE = 4096
OWNED = "mean of "  # before a parameter's name: what its owner remembers of the means that it sends


@dataclass(frozen=True)
class Ownership:
    """The owner of every element of a model's parameters.

    Parameters
    ----------
    bounds : mapping of str to tuple of int
        For each parameter W + 1 ascending positions, the first 0 and the last its elements: rank r
        owns the elements from ``bounds[name][r]`` to ``bounds[name][r + 1]``, which may be none.
    """

    bounds: Mapping[str, tuple[int, ...]]

    def part(self, name: str, owner: int) -> tuple[int, int]:
        """Return the first element of a parameter that a rank owns, and the one behind the last.

        Parameters
        ----------
        name : str
            Of the parameter.
        owner : int
        """
        bounds = self.bounds[name]
        return bounds[owner], bounds[owner + 1]

    def load(self, owner: int) -> int:
        """Return how many elements a rank owns."""
        return sum(bounds[owner + 1] - bounds[owner] for bounds in self.bounds.values())


def share_out(sizes: Mapping[str, int], world: int, *, whole: int = WHOLE) -> Ownership:
    """Share the elements of a model's parameters out to owners.

    It depends on the parameters and the number of ranks alone, not on buckets: what an owner
    remembers of its elements stays where it is when buckets are built anew.

    Parameters
    ----------
    sizes : mapping of str to int
        Elements of each parameter, in the same order on all ranks.
    world : int
        Ranks, W.
    whole : int
        Smaller parameters have one owner. Larger ones are cut at multiples of 128 elements, into
        parts that differ by 128 at most (the last one holds less than a multiple). Whoever owns
        least gets what is to be given.

    Returns
    -------
    Ownership

    Raises
    ------
    GradientError
        If there is no rank.
    """
    if world < 1:
        raise GradientError(f"gradients cannot be shared out to {world} ranks; give at least 1")
    return _shared_out(tuple(sizes.items()), world, whole)


@functools.lru_cache(maxsize=64)
def _shared_out(sizes: tuple[tuple[str, int], ...], world: int, whole: int) -> Ownership:
    loads = [0] * world
    bounds = {}
    for name, size in sizes:
        blocks = -(-size // ALIGNMENT)
        each, more = divmod(0 if size < whole else blocks, world)
        counts = [each] * world
        if size < whole:
            counts[min(range(world), key=loads.__getitem__)] = blocks
        else:
            for owner in sorted(range(world), key=loads.__getitem__)[:more]:
                counts[owner] += 1
        ends = [0]
        for count in counts:
            ends.append(min(size, ends[-1] + count * ALIGNMENT))
        for owner in range(world):
            loads[owner] += ends[owner + 1] - ends[owner]
        bounds[name] = tuple(ends)
    return Ownership(bounds)


@dataclass(frozen=True)
class Part:
    """The elements of a unit that one rank owns.

    Parameters
    ----------
    owner : int
    spec : GradientSpec
        Flat (m,), as this rank compresses it.
    ranges : tuple of (int, int)
        Where they lie in the unit: first element and the one behind the last, one range for each
        parameter that the owner has a part of.
    owned : Unit
        What the owner compresses the mean as: its pieces are the owned parts of parameters, named
        `OWNED` and the parameter's name.
    """

    owner: int
    spec: GradientSpec
    ranges: tuple[tuple[int, int], ...]
    owned: Unit

    def take(self, values: np.ndarray) -> np.ndarray:
        """Return these elements (m,) of a unit's (n,): a view where they lie together."""
        if len(self.ranges) == 1:
            ((start, stop),) = self.ranges
            return values[start:stop]
        return np.concatenate([values[start:stop] for start, stop in self.ranges])

    def put(self, values: np.ndarray, out: np.ndarray) -> None:
        """Write these elements (m,) to their places in a unit's (n,)."""
        at = 0
        for start, stop in self.ranges:
            out[start:stop] = values[at : at + stop - start]
            at += stop - start


def cut(unit: Unit, ownership: Ownership, world: int, mean: Compressor) -> tuple[Part, ...]:
    """Cut a unit into the parts of its owners.

    Parameters
    ----------
    unit : Unit
    ownership : Ownership
    world : int
    mean : Compressor
        Of the means that owners send.

    Returns
    -------
    tuple of Part
        By owner; ranks that own nothing of the unit are left out.
    """
    parts = []
    for owner in range(world):
        ranges, pieces, start, taken = [], [], 0, 0
        for piece in unit.pieces:
            first, end = ownership.part(piece.name, owner)
            if end > first:
                ranges.append((start + first, start + end))
                size = end - first
                name = OWNED + piece.name
                pieces.append(Piece(name, (size,), taken, taken + size, piece.role))
                taken += size
            start += piece.stop - piece.start
        if ranges:
            spec = replace(unit.spec, name=f"{unit.spec.name}, part {owner}", shape=(taken,))
            name = pieces[0].name if len(pieces) == 1 else OWNED + spec.name
            owned = Unit(replace(spec, name=name, worker=owner), mean, tuple(pieces))
            parts.append(Part(owner, spec, tuple(ranges), owned))
    return tuple(parts)


@dataclass(frozen=True)
class ShardedGradient(DecodedGradient):
    """What was sent of a unit, part by part.

    Parameters
    ----------
    parts : tuple of (Part, DecodedGradient)
    """

    parts: tuple[tuple[Part, DecodedGradient], ...]

    @property
    def count(self) -> int:
        """Elements of all parts that are not left out."""
        return sum(sent.count for _, sent in self.parts)

    def add_to(self, out: np.ndarray, factor: float) -> None:
        """Add all parts."""
        self._change(out, lambda sent, values: sent.add_to(values, factor))

    def subtract_from(self, values: np.ndarray) -> None:
        """Subtract all parts."""
        self._change(values, lambda sent, part: sent.subtract_from(part))

    def clear(self, values: np.ndarray) -> None:
        """Set to zero what was sent of all parts."""
        self._change(values, lambda sent, part: sent.clear(part))

    def _change(
        self, values: np.ndarray, change: Callable[[DecodedGradient, np.ndarray], None]
    ) -> None:
        for part, sent in self.parts:
            taken = part.take(values)
            change(sent, taken)
            if len(part.ranges) > 1:
                part.put(taken, values)
