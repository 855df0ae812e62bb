"""Define what is pruned together: weights, slices, blocks, n of m neighbours.

==================  ===============================================================================
granularity         a unit is
==================  ===============================================================================
`Element`           one weight
`Row`               a row of a matrix: all that one output reads
`Filter`            a slice of the first axis, of a tensor of any two axes or more
`Channel`           a slice of the second axis: all that reads one input
`Block`             a tile of the matrix that is the first axis × all the others
`NM`                one weight, where `keep` of each `group` of neighbours stay
==================  ===============================================================================

Every unit is a tile of the matrix that is the first axis × all the others; its score is the sum of
its weights' scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.bit_views import as_words
from tensorcomp.errors import PruningError
from tensorcomp.kernels import native
from tensorcomp.selection.text import Named, parse_named


class Granularity(Named):
    """Base of what may be pruned together."""

    def tile(self, shape: tuple[int, ...], name: str) -> tuple[int, int]:
        """Return the rows and columns of a unit.

        Raises
        ------
        PruningError
            If a tensor of this shape cannot be cut into such units; `name` says which.
        """
        return 1, 1

    def sums(self, scores: np.ndarray) -> np.ndarray:
        """Sum an array of scores over units: float64, flat."""
        height, width = self.tile(scores.shape, "")
        tiles = scores.reshape(_tiles(scores.shape, height, width))
        totals: np.ndarray = tiles.sum(axis=(1, 3), dtype=np.float64)
        return totals.reshape(-1)

    def spread(self, units: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Spread an array of units to the elements of a tensor."""
        down, height, across, width = _tiles(shape, *self.tile(shape, ""))
        tiles = np.broadcast_to(units.reshape(down, 1, across, 1), (down, height, across, width))
        return np.ascontiguousarray(tiles).reshape(shape)

    def _matrix(self, shape: tuple[int, ...], name: str) -> tuple[int, int]:
        """Return rows and columns of a tensor of two axes or more, at least 1 each."""
        if len(shape) < 2:
            raise PruningError(f"{self}: {name!r} of shape {list(shape)} has less than two axes")
        return max(shape[0], 1), max(math.prod(shape[1:]), 1)


def _tiles(shape: tuple[int, ...], height: int, width: int) -> tuple[int, int, int, int]:
    return shape[0] // height, height, math.prod(shape[1:]) // width, width


@dataclass(frozen=True)
class Element(Granularity):
    """Single weights."""

    id: ClassVar[str] = "element"


@dataclass(frozen=True)
class Filter(Granularity):
    """Slices of the first axis: output channels, output features."""

    id: ClassVar[str] = "filter"

    def tile(self, shape: tuple[int, ...], name: str) -> tuple[int, int]:
        """Return one row."""
        return 1, self._matrix(shape, name)[1]


@dataclass(frozen=True)
class Row(Filter):
    """Rows of matrices: `Filter`, for tensors of exactly two axes."""

    id: ClassVar[str] = "row"

    def tile(self, shape: tuple[int, ...], name: str) -> tuple[int, int]:
        """Return one row."""
        if len(shape) != 2:
            raise PruningError(
                f"row: expected a matrix, got {name!r} of shape {list(shape)}; take 'filter' for "
                "its slices"
            )
        return super().tile(shape, name)


@dataclass(frozen=True)
class Channel(Granularity):
    """Slices of the second axis: input channels, input features."""

    id: ClassVar[str] = "channel"

    def tile(self, shape: tuple[int, ...], name: str) -> tuple[int, int]:
        """Return all rows of a channel's columns."""
        return self._matrix(shape, name)[0], max(math.prod(shape[2:]), 1)


@dataclass(frozen=True)
class Block(Granularity):
    """Tiles of the matrix that is the first axis × all the others.

    Parameters
    ----------
    height, width : int
        At least 1; they divide the rows and the elements of a row.
    """

    id: ClassVar[str] = "block"
    height: int = argument(least=1)
    width: int = argument(least=1)

    def tile(self, shape: tuple[int, ...], name: str) -> tuple[int, int]:
        """Return the block."""
        self._matrix(shape, name)
        rows, columns = shape[0], math.prod(shape[1:])
        if rows % self.height or columns % self.width:
            raise PruningError(
                f"{self}: {name!r} has {rows} rows of {columns} elements, which "
                f"{self.height} × {self.width} does not divide; take another block, or leave the "
                "tensor out by 'where'"
            )
        return self.height, self.width


@dataclass(frozen=True)
class NM(Granularity):
    """Single weights, `keep` of each group of neighbours along an axis.

    The pattern itself is the sparsity: 1 − keep / group.

    Parameters
    ----------
    keep : int
        From 1 to `group`.
    group : int
        From 2 to 64; it divides the axis.
    axis : int
        Along which neighbours are counted. The usual one, -1, stands for all axes but the first,
        flat: what one output reads.
    """

    id: ClassVar[str] = "nm"
    keep: int = argument(least=1)
    group: int = argument(least=2, most=64)
    axis: int = -1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep > self.group:
            raise ValueError(f"expected keep to be at most {self.group}, got {self.keep}")

    @property
    def sparsity(self) -> float:
        """The part of the weights that each group loses."""
        return 1 - self.keep / self.group

    def tile(self, shape: tuple[int, ...], name: str) -> tuple[int, int]:
        """Return one weight, if groups divide the axis."""
        if not -1 <= self.axis < len(shape) or len(shape) < 1:
            raise PruningError(f"{self}: {name!r} of shape {list(shape)} has no such axis")
        length = shape[self.axis] if self.axis >= 0 else math.prod(shape[1:] or shape)
        if length % self.group:
            what = f"{self}: {name!r} of shape {list(shape)} has {length} elements along the axis"
            raise PruningError(
                f"{what}, which {self.group} does not divide; leave it out by 'where'"
            )
        return 1, 1

    def keeps(self, scores: np.ndarray) -> np.ndarray:
        """Return the mask of the `keep` highest scores of each group.

        Of equal scores those that come first are dropped. Along the usual axis, whole groups of a
        tensor's scores will do.
        """
        flat = self.axis == -1
        moved = scores if flat else np.moveaxis(scores, self.axis, -1)
        words = as_words(np.ascontiguousarray(moved)).reshape(-1, self.group)
        mask = np.empty(words.shape, np.bool_)
        native.scores_mark_groups(words, self.keep, mask)
        kept = mask.reshape(moved.shape)
        return np.ascontiguousarray(kept if flat else np.moveaxis(kept, -1, self.axis))


GRANULARITIES: dict[str, type[Granularity]] = {
    kind.id: kind for kind in (Element, Row, Filter, Channel, Block, NM)
}


def parse_granularity(text: str | Granularity) -> Granularity:
    """Return the granularity of a text such as ``filter`` or ``nm(2, 4)``.

    Raises
    ------
    PruningError
        If there is none.
    """
    if isinstance(text, Granularity):
        return text
    return parse_named(text, GRANULARITIES, "granularity")
