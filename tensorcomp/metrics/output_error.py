"""Error of a layer's output, on average over what it reads."""

from __future__ import annotations

import numpy as np

from tensorcomp.codecs.lowrank.blas import one_thread

_ROWS = 1024  # multiplied at once


def output_energy(rows: np.ndarray, moments: np.ndarray) -> float:
    """Return the mean squared norm of a layer's output, Σᵣ xᵣ H xᵣᵀ.

    That of the error of its weights is the mean squared error of the output; the output error is
    the square root of the ratio of both.

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
    with one_thread():
        for own, moment in zip(rows.reshape(groups, -1, n), moments, strict=True):
            for start in range(0, len(own), _ROWS):
                part = np.ascontiguousarray(own[start : start + _ROWS], np.float32)
                found += float((part @ moment * part).sum(dtype=np.float64))
    return max(found, 0.0)
