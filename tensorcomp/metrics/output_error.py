"""Error of a layer's output, on average over what it reads."""

from __future__ import annotations

import math

import numpy as np

from tensorcomp.codecs.lowrank.blas import one_thread

_ROWS = 1024  # multiplied at once
_INPUTS = 512
_FAR = 60  # octaves, half of what float32 holds


def output_energy(rows: np.ndarray, moments: np.ndarray) -> float:
    """Return the mean squared norm of a layer's output, Σᵣ xᵣ H xᵣᵀ.

    That of the error of its weights is the mean squared error of the output; the output error is
    the square root of the ratio of both. It is infinite if not all rows are finite.

    Parameters
    ----------
    rows : numpy.ndarray
        (R, n): weights, or their errors; one row an output.
    moments : numpy.ndarray
        (G, n, n): second moments H of the inputs, for each of G equal groups of rows.

    Examples
    --------
    >>> inputs = np.array([[1.0, 2.0], [3.0, 0.0]])
    >>> output_energy(np.eye(2), (inputs.T @ inputs / 2)[None])
    7.0
    """
    groups, n, _ = moments.shape
    found = 0.0
    with one_thread(), np.errstate(over="ignore", invalid="ignore"):
        for own, moment in zip(rows.reshape(groups, -1, n), moments, strict=True):
            # Powers of two, so that no product leaves the range of float32.
            top = math.frexp(float(np.diagonal(moment).max(initial=0)))[1]
            down = min(max(top, -_FAR), _FAR)
            for start in range(0, len(own), _ROWS):
                part = _widened(own[start : start + _ROWS])
                unit = math.frexp(max(float(part.max(initial=0)), -float(part.min(initial=0))))[1]
                left, right = (
                    np.ldexp(part, -shift).astype(np.float32) for shift in (unit + down, unit)
                )
                energy = 0.0
                for i in range(0, n, _INPUTS):  # half of H suffices, as it is symmetric
                    block = slice(i, i + _INPUTS)
                    read = 2 * (left[:, :i] @ moment[:i, block])
                    read += left[:, block] @ moment[block, block]
                    energy += float((read * right[:, block]).sum(dtype=np.float64))
                found += float(np.ldexp(energy, 2 * unit + down))
    return max(found, 0.0) if math.isfinite(found) else math.inf


def _widened(array: np.ndarray) -> np.ndarray:
    return array if array.dtype == np.float64 else array.astype(np.float32, copy=False)
