"""Low-rank factors: the product of two thin matrices nearest to a matrix.

LAPACK and BLAS do the work, in double precision. Their sums have no fixed order, so that another
build, processor or number of BLAS threads may give factors that differ in their last bits.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.codecs.lowrank.blas import one_thread
from tensorcomp.errors import NotRepresentable

_LARGE = 512  # the shorter side of a matrix for which sampling its range can pay
_FRACTION = 8  # a sample of less than this part of the shorter side is faster than all of it
_SPARE = 16  # columns sampled beyond the rank and a quarter of it
_POWER = 3  # iterations
_SEED = 0


def nearest_factors(
    matrix: np.ndarray, rank: int | None, lost: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the factors of the nearest matrix of rank r.

    They are float64, (m, r) and (r, n).

    Both have the square roots of the singular values folded in.

    Parameters
    ----------
    matrix : numpy.ndarray
        (m, n) float32 or float64, finite, not empty.
    rank : int or None
        The factors' rank; components that the matrix lacks are zeros. None for as many as needed.
    lost : float
        For a rank of None: the part of the squared Frobenius norm that may be missing.

    Raises
    ------
    NotRepresentable
        If LAPACK does not converge.
    """
    if matrix.shape[0] > matrix.shape[1]:
        right, left = nearest_factors(np.ascontiguousarray(matrix.T), rank, lost)
        return left.T, right.T
    peak = float(np.abs(matrix).max())
    exponent = int(np.frexp(peak)[1]) // 2 * 2  # even, so that its half goes to each factor
    scaled = np.ldexp(matrix.astype(np.float64), -exponent)
    with one_thread():
        basis, projected = _components(scaled, rank, precise=matrix.dtype == np.float64)
    energies = np.square(projected).sum(axis=1)
    if not np.isfinite(energies).all():
        raise NotRepresentable("svd: LAPACK gives NaN or infinity for this matrix")
    tails = np.append(np.cumsum(energies[::-1])[::-1], 0.0)
    noise = np.square(np.finfo(np.float64).eps * max(matrix.shape)) * tails[0]
    real = int(np.count_nonzero(np.cumprod(energies > noise)))
    if rank is None:
        rank = min(int(np.argmax(tails <= lost * tails[0])), real)
    roots = np.sqrt(np.sqrt(energies[:rank]))
    roots[real:] = 0.0
    inverse = np.divide(1.0, roots, out=np.zeros_like(roots), where=roots > 0)
    half = np.ldexp(1.0, exponent // 2)
    left = basis[:, :rank] * (roots * half)
    return left, projected[:rank] * (inverse * half)[:, None]


def _components(
    matrix: np.ndarray, rank: int | None, *, precise: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return left singular vectors (m, k), strongest first, and the matrix's rows in their basis.

    Whatever the vectors' own errors, they are orthonormal, and so the squared norms of those rows
    are what each takes from the squared norm of the matrix.
    """
    if rank is not None and matrix.shape[0] >= _LARGE:
        sampled = rank + rank // 4 + _SPARE
        if sampled * _FRACTION <= matrix.shape[0]:
            span = _range_of(matrix, sampled)
            inner = span.T @ matrix
            basis = _left_vectors(inner, precise=precise)
            return span @ basis, basis.T @ inner
    basis = _left_vectors(matrix, precise=precise)
    return basis, basis.T @ matrix


def _range_of(matrix: np.ndarray, size: int) -> np.ndarray:
    """Return an orthonormal basis of a range that holds the strongest components, about."""
    random = np.random.default_rng(_SEED)
    span = np.linalg.qr(matrix @ random.standard_normal((matrix.shape[1], size)))[0]
    for _ in range(_POWER):
        span = np.linalg.qr(matrix @ np.linalg.qr(matrix.T @ span)[0])[0]
    return span


def _left_vectors(matrix: np.ndarray, *, precise: bool) -> np.ndarray:
    """Return the left singular vectors of a matrix with no more rows than columns.

    Those of the Gram matrix take a fifth of the time. They separate components that are weaker
    than the strongest by up to 1e-8: enough for values of single precision.
    """
    for by_gram in (not precise, precise):
        try:
            if by_gram:
                return np.linalg.eigh(matrix @ matrix.T)[1][:, ::-1]
            return np.linalg.svd(matrix, full_matrices=False)[0]
        except np.linalg.LinAlgError:  # it did not converge; the other works differently
            continue
    raise NotRepresentable("svd: LAPACK does not converge on this matrix")
