"""Approximate gradients by low rank (PowerSGD); factors are summed."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.text import parse_tree
from tensorcomp.codecs.tree import Node
from tensorcomp.errors import NotRepresentable
from tensorcomp.gradients.base import (
    Compressor,
    GradientSpec,
    Payload,
    Phases,
    Reduction,
    State,
    StepInfo,
)
from tensorcomp.gradients.compressors.dense import Dense
from tensorcomp.gradients.draws import MAX_SEED, drawn_numbers, shared_key
from tensorcomp.gradients.payload.arrays import copied, host, like
from tensorcomp.gradients.payload.blobs import parts_blob
from tensorcomp.gradients.payload.decoded import DecodedGradient, LowRankGradient
from tensorcomp.gradients.payload.encode import tree_blob
from tensorcomp.gradients.payload.receive import receive_blob
from tensorcomp.kernels import native

_ATTEMPTS = 8
_LEAST = 1e-6  # part of a vector below which it is taken for a combination of those before it


@dataclass(frozen=True)
class PowerSgdState(State):
    """Hold the right factor of the last step.

    Parameters
    ----------
    count : int
        Steps so far.
    right : numpy.ndarray or torch.Tensor
        (p, r), orthonormal: what the right factor of the last mean spans; random before the first
        step. Empty for a tensor that is sent dense.
    """

    count: int
    right: Any


@dataclass(frozen=True)
class PowerSgd(Compressor):
    """Send a matrix as two thin factors, by one step of power iteration.

    With Q (p, r) from the step before, orthonormal: P = mean of M·Q over the workers, made
    orthonormal; Q = mean of Mᵀ·P; the mean gradient is P·Qᵀ, the mean of what each worker sends,
    P·Pᵀ·M. Both means are sums of arrays, so 2 (W − 1) / W · r (m + p) values a worker and step
    are sent.

    Vectors that depend on others, all those of a gradient of zeros for example, are replaced by
    random ones, the same on all workers: nothing is divided by zero, and no direction is lost for
    ever. A payload is one of the tree ``svd(r, left=raw, right=raw)``.

    Tensors of less than two axes, and those whose factors would not be smaller, are sent dense.

    Parameters
    ----------
    rank : int
        At least 1; that of a matrix with a shorter side is that side.
    warm_start : bool
        Whether Q is that of the step before; else it is drawn anew at each step.
    seed : int
        Of the random numbers, from 0 to 2**64 − 1, the same on all workers.

    Raises
    ------
    ValueError
        If a parameter is out of range.

    Notes
    -----
    Cost: O(m p r), two products of BLAS and one with sums in a fixed order. With error feedback
    only. Not for gradients whose singular values do not decay, nor for tensors of few rows.

    References
    ----------
    Vogels, Karimireddy & Jaggi 2019, "PowerSGD: Practical low-rank gradient compression for
    distributed optimization".
    """

    id: ClassVar[str] = "powersgd"
    reduction: ClassVar[Reduction] = "sum"
    takes_tensors: ClassVar[bool] = True
    rank: int = argument(4, least=1)
    warm_start: bool = True
    seed: int = argument(0, least=0, most=MAX_SEED)

    def at(self, info: StepInfo, spec: GradientSpec) -> Compressor:
        """Return `Dense` for a tensor that factors do not make smaller."""
        return self if self._rank(spec.shape) else Dense()

    def _rank(self, shape: tuple[int, ...]) -> int:
        """Return the rank of the factors of an array, 0 if they would not be smaller than it."""
        rows, columns = _matrix(shape)
        rank = min(self.rank, rows, columns)
        return rank if rank * (rows + columns) < rows * columns else 0

    def text(self) -> str:
        """Return what workers must have in common for their factors to be summed."""
        warm = str(self.warm_start).lower()
        return f"powersgd({self.rank}, warm_start={warm}, seed={self.seed})"

    def init(self, spec: GradientSpec) -> PowerSgdState:
        """Return the state before the first step."""
        return PowerSgdState(spec, 0, self._drawn(spec, 0))

    def _drawn(self, spec: GradientSpec, count: int) -> Any:
        rank = self._rank(spec.shape)
        zeros = np.zeros((_matrix(spec.shape)[1] if rank else 0, rank), spec.dtype)
        return _orthonormal(zeros, shared_key(spec, self.seed, count))

    def phases(self, gradient: Any, state: Any) -> Phases:
        """Yield M·Q (m, r), then Mᵀ·P (p, r)."""
        shape = state.spec.shape
        if not self._rank(shape):
            return (yield from Dense().phases(gradient, state))
        matrix = gradient.reshape(_matrix(shape))
        left = yield matrix @ state.right
        left = self._left(left.reshape(matrix.shape[0], -1), state)
        own = copied((left.T @ matrix).T)
        right = (yield copied(own)).reshape(own.shape)
        mean = LowRankGradient(left, right).values.reshape(shape)
        return mean, LowRankGradient(left, own), self._following(state, right)

    def _left(self, product: Any, state: PowerSgdState) -> Any:
        """Return the left factor of an approximation: an orthonormal basis of M · Q (m, r)."""
        return _orthonormal(product, shared_key(state.spec, self.seed, ~state.count))

    def _following(self, state: PowerSgdState, right: Any) -> PowerSgdState:
        """Return the state after a step with this right factor (p, r)."""
        count = state.count + 1
        if self.warm_start:
            following = _orthonormal(right, shared_key(state.spec, self.seed, count))
        else:
            following = like(self._drawn(state.spec, count), right)
        return replace(state, count=count, right=following)

    def step(self, gradient: Any, state: Any) -> tuple[Payload, PowerSgdState]:
        """Return a payload with both factors of this gradient alone."""
        rank = self._rank(state.spec.shape)
        if not rank:
            return tree_blob(_tree(1), gradient, state.spec), state
        matrix = gradient.reshape(_matrix(state.spec.shape))
        left = self._left(matrix @ state.right, state)
        right = left.T @ matrix
        factors = functools.partial(_factors, host(left), host(right))
        payload = parts_blob(_tree(rank), gradient, state.spec, factors)
        return payload, self._following(state, right.T)

    def receive(self, payload: Payload) -> DecodedGradient:
        """Return the product of the factors."""
        return receive_blob(_tree(self._rank(payload.spec.shape) or 1), payload)


def _factors(
    left: np.ndarray, right: np.ndarray, chunk: np.ndarray, start: int
) -> dict[str, np.ndarray]:
    """Return the parts of a chunk: the rows of the left factor, and the whole right one."""
    rows = left[start : start + len(chunk)] if chunk.ndim > 1 else left[:0]
    if rows.shape[:1] != chunk.shape[:1] or rows.size + right.size > chunk.size:
        raise NotRepresentable("svd: the factors do not fit a chunk, or are larger than it")
    if not (np.isfinite(rows).all() and np.isfinite(right).all()):
        raise NotRepresentable("svd: a factor overflows")
    return {"left": rows, "right": right}


def _orthonormal(vectors: Any, key: np.uint64) -> Any:
    """Return the columns (n, r) made orthonormal; random ones in place of zeros and dependent ones.

    Equal columns give equal results on every machine; those of a tensor go to the host.
    """
    given = host(vectors)
    rows = np.array(given.T, np.float64, order="C")
    for j, row in enumerate(rows):
        for attempt in range(_ATTEMPTS):
            if native.linear_orthonormalize(row, rows[:j], _LEAST):
                break
            numbers = drawn_numbers((int(key) + _ATTEMPTS * j + attempt) % 2**64, row.size)
            row[:] = (numbers >> np.uint64(11)) * 2.0**-52 - 1  # from -1 to 1
        else:
            row[:] = 0
    return like(np.ascontiguousarray(rows.T, given.dtype), vectors)


def _tree(rank: int) -> Node:
    return parse_tree(f"svd({rank}, left=raw, right=raw)")


def _matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return rows and columns of an array's matrix; none where it has less than two axes."""
    if len(shape) < 2 or 0 in shape:
        return 0, 0
    return shape[0], math.prod(shape[1:])
