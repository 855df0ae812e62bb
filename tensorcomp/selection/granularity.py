"""What is pruned together: single weights, slices, blocks, or some of each group of neighbours.

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

A unit's score is the sum of its weights' scores.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.bit_views import as_words
from tensorcomp.errors import PruningError
from tensorcomp.kernels import native
from tensorcomp.selection.text import format_call, parse_call

_LARGEST_GROUP = 64


class Granularity(ABC):
    """Base of what may be pruned together.

    Attributes
    ----------
    id : str
        The name in texts.
    """

    id: ClassVar[str]

    def __str__(self) -> str:
        """Return the text that `parse_granularity` reads."""
        return format_call(self)

    @abstractmethod
    def units(self, shape: tuple[int, ...], name: str) -> tuple[int, ...]:
        """Return the shape of the array of a tensor's units.

        Raises
        ------
        PruningError
            If a tensor of this shape cannot be cut into such units; `name` says which.
        """

    @abstractmethod
    def sums(self, scores: np.ndarray) -> np.ndarray:
        """Return the units' scores, float64, of an array of scores of the tensor's shape."""

    @abstractmethod
    def spread(self, units: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Return what a tensor's elements get from an array of its units."""


class _Weights(Granularity):
    """Single weights are the units."""

    def sums(self, scores: np.ndarray) -> np.ndarray:
        """Return the scores."""
        return scores

    def spread(self, units: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Return the units."""
        return units.reshape(shape)


@dataclass(frozen=True)
class Element(_Weights):
    """Single weights."""

    id: ClassVar[str] = "element"

    def units(self, shape: tuple[int, ...], name: str) -> tuple[int, ...]:
        """Return the tensor's shape."""
        return shape


class _Slices(Granularity):
    """Slices along one axis."""

    axis: ClassVar[int]

    def units(self, shape: tuple[int, ...], name: str) -> tuple[int, ...]:
        """Return the length of the axis."""
        if len(shape) < 2:
            raise PruningError(f"{self}: {name!r} of shape {list(shape)} has less than two axes")
        return (shape[self.axis],)

    def sums(self, scores: np.ndarray) -> np.ndarray:
        """Return the sum of each slice."""
        others = tuple(axis for axis in range(scores.ndim) if axis != self.axis)
        totals: np.ndarray = scores.sum(axis=others, dtype=np.float64)
        return totals

    def spread(self, units: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Return for each element the value of its slice."""
        along = [1] * len(shape)
        along[self.axis] = shape[self.axis]
        return np.ascontiguousarray(np.broadcast_to(units.reshape(along), shape))


@dataclass(frozen=True)
class Filter(_Slices):
    """Slices of the first axis: output channels, output features."""

    id: ClassVar[str] = "filter"
    axis: ClassVar[int] = 0


@dataclass(frozen=True)
class Row(_Slices):
    """Rows of matrices: `Filter`, for tensors of exactly two axes."""

    id: ClassVar[str] = "row"
    axis: ClassVar[int] = 0

    def units(self, shape: tuple[int, ...], name: str) -> tuple[int, ...]:
        """Return the number of rows."""
        if len(shape) != 2:
            raise PruningError(
                f"row: {name!r} of shape {list(shape)} is no matrix; take 'filter' for its slices"
            )
        return shape[:1]


@dataclass(frozen=True)
class Channel(_Slices):
    """Slices of the second axis: input channels, input features."""

    id: ClassVar[str] = "channel"
    axis: ClassVar[int] = 1


@dataclass(frozen=True)
class Block(Granularity):
    """Tiles of the matrix that is the first axis × all the others.

    Parameters
    ----------
    height, width : int
        At least 1; they divide the rows and the elements of a row.
    """

    id: ClassVar[str] = "block"
    height: int
    width: int

    def __post_init__(self) -> None:
        for size in (self.height, self.width):
            if type(size) is not int or size < 1:
                raise ValueError(f"a block's sides are integers of at least 1; got {size!r}")

    def units(self, shape: tuple[int, ...], name: str) -> tuple[int, ...]:
        """Return the number of tiles down and across."""
        if len(shape) < 2:
            raise PruningError(f"{self}: {name!r} of shape {list(shape)} has less than two axes")
        rows, columns = shape[0], math.prod(shape[1:])
        if rows % self.height or columns % self.width:
            raise PruningError(
                f"{self}: {name!r} has {rows} rows of {columns} elements, which "
                f"{self.height} × {self.width} does not divide"
            )
        return rows // self.height, columns // self.width

    def sums(self, scores: np.ndarray) -> np.ndarray:
        """Return the sum of each tile."""
        rows, columns = scores.shape[0], math.prod(scores.shape[1:])
        tiles = scores.reshape(rows // self.height, self.height, columns // self.width, self.width)
        totals: np.ndarray = tiles.sum(axis=(1, 3), dtype=np.float64)
        return totals

    def spread(self, units: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Return for each element the value of its tile."""
        return units.repeat(self.height, axis=0).repeat(self.width, axis=1).reshape(shape)


@dataclass(frozen=True)
class NM(_Weights):
    """Single weights, of which `keep` stay in each group of neighbours along an axis.

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
    keep: int
    group: int
    axis: int = -1

    def __post_init__(self) -> None:
        if type(self.group) is not int or not 2 <= self.group <= _LARGEST_GROUP:
            raise ValueError(f"group is an integer from 2 to {_LARGEST_GROUP}; got {self.group!r}")
        if type(self.keep) is not int or not 1 <= self.keep <= self.group:
            raise ValueError(f"keep is an integer from 1 to {self.group}; got {self.keep!r}")
        if type(self.axis) is not int:
            raise ValueError(f"axis is an integer; got {self.axis!r}")

    @property
    def sparsity(self) -> float:
        """The part of the weights that each group loses."""
        return 1 - self.keep / self.group

    def units(self, shape: tuple[int, ...], name: str) -> tuple[int, ...]:
        """Return the tensor's shape."""
        if not -1 <= self.axis < len(shape) or len(shape) < 1:
            raise PruningError(f"{self}: {name!r} of shape {list(shape)} has no such axis")
        length = shape[self.axis] if self.axis >= 0 else math.prod(shape[1:] or shape)
        if length % self.group:
            raise PruningError(
                f"{self}: {name!r} of shape {list(shape)} has {length} elements along the axis, "
                f"which {self.group} does not divide"
            )
        return shape

    def keeps(self, scores: np.ndarray) -> np.ndarray:
        """Return the mask of the `keep` highest scores of each group.

        Of equal scores those that come first are dropped.

        Parameters
        ----------
        scores : numpy.ndarray
            Float32 or float64, of the tensor's shape; along the usual axis, of whole groups.
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
    return parse_call(text, GRANULARITIES, "granularity")
