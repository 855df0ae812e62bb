"""Let the weights that are kept make up for those that are pruned.

A row w of a matrix becomes the row x that is zero where w is pruned and has the least error
(w − x) H (w − x)ᵀ, H the second moments of what it is multiplied with: of the kept weights K,
H_KK x_K = H_K w. Conjugate gradients, preconditioned by the diagonal of H, solve that for many rows
at once by products of matrices; where a solver for each row would take O(n³).

References
----------
Hassibi & Stork 1993, "Second order derivatives for network pruning: optimal brain surgeon", for the
least squares; Frantar & Alistarh 2023, "SparseGPT: massive language models can be accurately pruned
in one-shot", for large matrices, column by column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensorcomp.codecs.lowrank.blas import one_thread
from tensorcomp.selection.checks import pruned
from tensorcomp.selection.scores.base import widened

if TYPE_CHECKING:
    from tensorcomp.planning.moments import Moment

_ROWS = 256  # solved at once
_ITERATIONS = 20  # what is then left of the error that more would take away is a hundredth
_TINY = np.finfo(np.float32).tiny


def repaired(weights: np.ndarray, kept: np.ndarray, moment: Moment) -> np.ndarray:
    """Return weights with +0.0 where pruned, and others that make up for it.

    Zeros that are kept stay as they are, and no other weight becomes zero.

    Parameters
    ----------
    weights : numpy.ndarray
        Finite floats.
    kept : numpy.ndarray
        Bool, of the same shape.
    moment : Moment
        Of this tensor.
    """
    wide = widened(weights).reshape(len(weights), -1)
    exponent = np.frexp(np.abs(wide).max(initial=0))[1]  # that of squares may be out of range
    rows = np.ldexp(wide, -exponent).astype(np.float32)
    live = kept.reshape(rows.shape) & (rows != 0)
    if moment.transposed:
        rows, live = rows.T, live.T
    change = live & ((rows != 0) & ~live).any(axis=1, keepdims=True)
    damped = moment.damped()
    damped /= damped.trace(axis1=1, axis2=2)[:, None, None] / damped.shape[1]
    found, length = np.empty_like(rows), len(rows) // len(damped)
    with one_thread():
        for group, matrix in enumerate(damped.astype(np.float32)):
            for start in range(group * length, (group + 1) * length, _ROWS):
                some = slice(start, min(start + _ROWS, (group + 1) * length))
                found[some] = _least_squares(rows[some], live[some], matrix)
        if moment.transposed:
            found, change = found.T, change.T
        values = np.ldexp(found.astype(wide.dtype), exponent).astype(weights.dtype)
    values = values.reshape(weights.shape)
    sound = change.reshape(weights.shape) & (values != 0) & np.isfinite(values)
    return pruned(np.where(sound, values, weights), kept)


def _least_squares(rows: np.ndarray, live: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """Return the rows that are zero but where live, and nearest to rows by second moments."""
    diagonal = np.diagonal(moments)
    found = np.where(live, rows, 0)
    left = np.where(live, (rows - found) @ moments, 0)
    along = left / diagonal
    size = _products(left, along)
    for _ in range(_ITERATIONS):
        pushed = np.where(live, along @ moments, 0)
        step = size / np.maximum(_products(along, pushed), _TINY)
        found += step * along
        left -= step * pushed
        scaled = left / diagonal
        before, size = size, _products(left, scaled)
        along = scaled + size / np.maximum(before, _TINY) * along
    return found


def _products(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the scalar product of each row, as a column."""
    return np.asarray(np.einsum("ij,ij->i", x, y)[:, None])
