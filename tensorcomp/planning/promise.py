"""Quick looks that tell which candidates are not worth a trial.

Dense weights are coded best by a quantizer alone. Factors pay where the spectrum decays, masks
where most elements, rows or columns are next to nothing; a look costs far less than a trial.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.codecs.lowrank.rotate import Rotate
from tensorcomp.codecs.tree import Node

_SKETCH = 32  # rows and columns whose singular values stand for the spectrum
_FEWEST = 8
_DECAYED = 0.25  # effective rank over rank; 0.85 where rows are independent
_SMALL = 0.05  # of the root mean square: an element below it is next to nothing
_SPARSE = 0.5  # share of such elements from which masks may pay
_DEAD = 1e-4  # of the mean energy: a row or column below it is next to nothing
_FEW = 0.02  # share of such rows or columns from which dropping them may pay
_DEAREST_VECTORS = 0.3  # bits a weight, for the directions that a rotation aligns


def is_promising(tree: Node, sample: np.ndarray, rows: int | None = None) -> bool:
    """Return whether a tree may be worth a trial on a tensor.

    Parameters
    ----------
    tree : Node
    sample : numpy.ndarray
        Some rows of the tensor, evenly spaced.
    rows : int, optional
        Those of the whole tensor; by default the sample is all of it.
    """
    if isinstance(tree.codec, Rotate):
        return 8 * tree.codec.rank <= _DEAREST_VECTORS * (rows or len(_matrix(sample)))
    look = _LOOKS.get(tree.codec.id)
    return look is None or look(_matrix(sample))


def _matrix(sample: np.ndarray) -> np.ndarray:
    wide = np.asarray(sample, np.float64)
    return wide.reshape(wide.shape[0] if wide.ndim > 1 else 1, -1)


def _decays(matrix: np.ndarray) -> bool:
    """Return whether the spectrum of the matrix decays, told from a part of it.

    With the eigenvalues λ of the rows' Gram matrix, (Σλ)² / Σλ² is how many directions there would
    be if all were equal; it follows from the matrix's entries alone.
    """
    rows = matrix[:: max(1, matrix.shape[0] // _SKETCH)][:_SKETCH]
    if min(rows.shape) < _FEWEST:
        return False
    gram = np.einsum("ik,jk->ij", rows, rows)
    total, squares = float(np.trace(gram)), float(np.sum(gram * gram))
    return squares > 0 and total * total / squares <= _DECAYED * min(rows.shape)


def _has_small_elements(matrix: np.ndarray) -> bool:
    scale = np.sqrt(np.mean(matrix**2))
    return bool(np.mean(np.abs(matrix) < _SMALL * scale) >= _SPARSE)


def _has_dead_rows(matrix: np.ndarray) -> bool:
    return _has_dead(np.mean(matrix**2, axis=1))


def _has_dead_columns(matrix: np.ndarray) -> bool:
    return _has_dead(np.mean(matrix**2, axis=0))


def _has_dead(energy: np.ndarray) -> bool:
    return bool(energy.size >= _FEWEST and np.mean(energy < _DEAD * energy.mean()) >= _FEW)


_LOOKS = {
    "svd": _decays,
    "magnitude": _has_small_elements,
    "threshold": _has_small_elements,
    "topk": _has_small_elements,
    "nm": _has_small_elements,
    "block": _has_small_elements,
    "filter": _has_dead_rows,
    "channel": _has_dead_columns,
}
