"""Part of a checkpoint that stands for the whole: tensors of every role, rows of every tensor.

Of a tensor that is too large, rows are taken evenly spaced; of a role with too many tensors,
tensors evenly spaced in the checkpoint's order. Each piece says for how many weights it stands, so
that sums over pieces, so weighted, are estimates of those over the checkpoint.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tensorcomp.checkpoints import TensorInfo
from tensorcomp.container.blob import CHUNK_ELEMENTS, ChunkGrid, chunk_grid

_AT_ONCE = 1 << 18  # elements widened to float64
_LARGEST = CHUNK_ELEMENTS  # elements of a piece, about: what the file would hold as one chunk


@dataclass(frozen=True)
class Stored:
    """A tensor of a checkpoint.

    Parameters
    ----------
    info : TensorInfo
    role : str
    read : callable
        Returns the bytes of the tensor of a name, flat uint8.
    """

    info: TensorInfo
    role: str
    read: Callable[[str], np.ndarray]

    @property
    def weights(self) -> int:
        """Elements."""
        return math.prod(self.info.shape)


@dataclass(frozen=True)
class Piece:
    """A tensor, or rows of it.

    Parameters
    ----------
    name : str
    dtype : str
        As the checkpoint names it.
    grid : ChunkGrid
        Of the piece.
    weights : float
        Elements of the checkpoint that it stands for.
    load : callable
        Returns the array.
    """

    name: str
    dtype: str
    grid: ChunkGrid
    weights: float
    load: Callable[[], np.ndarray]

    @property
    def size(self) -> int:
        """Elements of the piece itself."""
        return math.prod(self.grid.shape)

    @property
    def share(self) -> float:
        """How many weights each of its elements stands for."""
        return self.weights / self.size if self.size else 0.0


def take_pieces(tensors: Iterable[Stored], most: int | None) -> list[Piece]:
    """Return pieces of about so many elements together.

    Parameters
    ----------
    tensors : iterable of Stored
    most : int or None
        None takes every tensor whole.
    """
    whole = list(tensors)
    total = sum(tensor.weights for tensor in whole)
    if most is None or total <= most:
        return [_piece(tensor, 1) for tensor in whole]
    roles: dict[str, list[Stored]] = {}
    for tensor in whole:
        roles.setdefault(tensor.role, []).append(tensor)
    available = sum(min(tensor.weights, _LARGEST) for tensor in whole)
    share = min(most / available, 1.0)
    pieces = {}
    for group in roles.values():
        chosen = _evenly(group, max(int(len(group) * share), 1))
        stands_for = sum(tensor.weights for tensor in group)
        factor = stands_for / max(sum(tensor.weights for tensor in chosen), 1)
        for tensor in chosen:
            piece = _piece(tensor, -(-tensor.weights // _LARGEST))
            pieces[id(tensor)] = replace(piece, weights=factor * piece.weights)
    return [pieces[id(tensor)] for tensor in whole if id(tensor) in pieces]


def _evenly(group: Sequence[Stored], count: int) -> list[Stored]:
    return [group[(2 * number + 1) * len(group) // (2 * count)] for number in range(count)]


def _piece(tensor: Stored, step: int) -> Piece:
    """Return every `step`-th row of a tensor; all of it is read anew each time it is loaded."""
    info = tensor.info
    grid = chunk_grid(info.dtype, info.shape, info.nbytes)

    def load() -> np.ndarray:
        return tensor.read(info.name).view(grid.dtype).reshape(grid.shape)

    if step == 1:
        return Piece(info.name, info.dtype, grid, float(tensor.weights), load)
    rows = len(range(0, grid.shape[0], step))
    cut = replace(grid, shape=(rows, *grid.shape[1:]))
    kept = functools.cache(lambda: np.ascontiguousarray(load()[::step]))
    return Piece(info.name, info.dtype, cut, float(tensor.weights), kept)


@dataclass(frozen=True)
class Weights:
    """A piece, and the mean and the mean square of its elements."""

    piece: Piece
    mean: float
    square: float

    @property
    def finite(self) -> bool:
        """Whether every element is, and their squares together."""
        return math.isfinite(self.square)

    @property
    def scale(self) -> float:
        """Root mean square."""
        return math.sqrt(self.square)

    @property
    def variance(self) -> float:
        """Mean square about the mean."""
        return max(self.square - self.mean**2, 0.0)


def look_at(piece: Piece) -> Weights:
    """Return a piece of floats with its moments."""
    total = squares = 0.0
    flat = piece.load().reshape(-1)
    with np.errstate(all="ignore"):
        for start in range(0, flat.size, _AT_ONCE):
            values = flat[start : start + _AT_ONCE].astype(np.float64)
            total += float(values.sum())
            squares += float(np.square(values).sum())
    return Weights(piece, total / flat.size, squares / flat.size)
