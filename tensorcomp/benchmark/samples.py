"""Sample the tensors of every role in a checkpoint, and their rows.

Of a tensor that is too large, rows are taken evenly spaced; of a role with too many tensors,
tensors evenly spaced in the checkpoint's order. Each piece says for how many weights it stands, so
that sums over pieces, so weighted, are estimates of those over the checkpoint.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.container.chunk_grid import CHUNK_ELEMENTS, ChunkGrid, chunk_grid

if TYPE_CHECKING:
    from tensorcomp.planning.calibrated import Calibrated

_MAX_PIECE = CHUNK_ELEMENTS  # elements of a piece, about: what the file would hold as one chunk
_HUGE = 1e280  # squares beyond, summed up and weighted, may leave the range of float64
_AT_ONCE = 1 << 18  # elements widened to float64


@dataclass(frozen=True)
class SourceTensor:
    """Tensor of a checkpoint, and the function that reads it."""

    info: TensorInfo
    role: str
    read: Callable[[str], np.ndarray]  # returns the bytes of the tensor of a name
    calibrated: Calibrated | None = None

    @property
    def weights(self) -> int:
        """Elements."""
        return math.prod(self.info.shape)


@dataclass(frozen=True)
class TensorSample:
    """Tensor, or rows of it, that stand for others of its role."""

    name: str
    dtype: str  # as the checkpoint names it
    grid: ChunkGrid
    share: float  # for how many like it each of its elements stands
    weights: float  # elements of the checkpoint that it stands for
    load: Callable[[], np.ndarray]
    calibrated: Calibrated | None = None

    @property
    def size(self) -> int:
        """Elements of the piece itself."""
        return math.prod(self.grid.shape)

    @functools.cached_property
    def moments(self) -> tuple[float, float]:
        """Means of the elements, floats, and of their squares."""
        flat = self.load().reshape(-1)
        total = squares = 0.0
        with np.errstate(all="ignore"):
            for start in range(0, flat.size, _AT_ONCE):
                block = flat[start : start + _AT_ONCE].astype(np.float64)
                total += float(block.sum())
                squares += float(block @ block)
        return total / flat.size, squares / flat.size

    @property
    def finite(self) -> bool:
        """Whether every element is, and sums of their weighted squares."""
        return self.moments[1] < _HUGE  # not so if it is NaN

    @property
    def variance(self) -> float:
        """Mean square about the mean."""
        mean, square = self.moments
        return max(square - mean**2, 0.0)


def take_pieces(tensors: Iterable[SourceTensor], most: int | None) -> list[TensorSample]:
    """Return pieces of about `most` elements together, or all tensors if None."""
    whole = list(tensors)
    total = sum(tensor.weights for tensor in whole)
    if most is None or total <= most:
        return [_piece(tensor, 1, keep=most is not None) for tensor in whole]
    roles: dict[str, list[SourceTensor]] = {}
    for tensor in whole:
        roles.setdefault(tensor.role, []).append(tensor)
    available = sum(min(tensor.weights, _MAX_PIECE) for tensor in whole)
    part = min(most / available, 1.0)
    pieces = {}
    for group in roles.values():
        chosen = _evenly(group, max(int(len(group) * part), 1))
        stands_for = sum(tensor.weights for tensor in group)
        factor = stands_for / max(sum(tensor.weights for tensor in chosen), 1)
        for tensor in chosen:
            piece = _piece(tensor, max(-(-tensor.weights // _MAX_PIECE), 1), keep=True)
            share, weights = factor * piece.share, factor * piece.weights
            pieces[id(tensor)] = replace(piece, share=share, weights=weights)
    return [pieces[id(tensor)] for tensor in whole if id(tensor) in pieces]


def _evenly(group: Sequence[SourceTensor], count: int) -> list[SourceTensor]:
    return [group[(2 * number + 1) * len(group) // (2 * count)] for number in range(count)]


def _piece(tensor: SourceTensor, step: int, *, keep: bool) -> TensorSample:
    """Return every `step`-th row of a tensor, cached or read anew each time."""
    info = tensor.info
    grid = chunk_grid(info.dtype, info.shape, info.nbytes)

    def load() -> np.ndarray:
        array = tensor.read(info.name).view(grid.dtype).reshape(grid.shape)
        return array if step == 1 else np.ascontiguousarray(array[::step])

    rows = len(range(0, grid.shape[0], step))
    return TensorSample(
        name=info.name,
        dtype=info.dtype,
        grid=replace(grid, shape=(rows, *grid.shape[1:])),
        share=grid.shape[0] / rows if rows else 1.0,
        weights=float(tensor.weights),
        load=functools.cache(load) if keep else load,
        calibrated=tensor.calibrated and tensor.calibrated.every(step),
    )
