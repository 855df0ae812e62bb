"""Plan lossless trees of tensors of which a base has the same.

Forms of `difference` compete with the tree that codes the tensor alone, by the bytes that each
makes of the same sampled rows. A tensor's update may touch a few rows only, as that of embeddings
does: then a sample of rows may miss them all, and any form is as good as nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tensorcomp.codecs.bit_views import as_rows, as_words, readable
from tensorcomp.codecs.floats.difference import MAX_RANK
from tensorcomp.codecs.lowrank.blas import one_thread
from tensorcomp.codecs.payload import byte_count, encode
from tensorcomp.codecs.text import parse_tree
from tensorcomp.codecs.tree import Node, fit, pack_shared
from tensorcomp.dtypes import holds_floats
from tensorcomp.errors import NotRepresentable
from tensorcomp.planning.lossless import LosslessPlan, sample_rows

_EQUAL = "difference(levels=false)"
_SAMPLE = 1 << 16  # elements
_MOSTLY_SAMPLE = 1 << 18  # where a thousandth of them changed, some hundreds show how
_REASON = "difference to the base"
_SINGLE = 4  # bytes of floats that show what weight decay did
_MOSTLY_SAME = 0.75  # share of equal elements above which nothing predicts the others
_MIN_PREDICTED = 1 << 12  # elements that can pay for factors
_RANK_ROWS = 256  # rows that show a rank, if it is below half of that
_MIN_SIDE = 16
_FALL = 9.0  # of squared singular values at the rank of a merged adapter: far more than by chance
_NOISE, _MIN_ENERGY = 1e-15, 1e-300  # of the greatest: what eigenvalues may be wrong by


def plan_with_reference(
    array: np.ndarray, reference: np.ndarray, alone: LosslessPlan
) -> LosslessPlan:
    """Return the plan that takes the fewest bytes of sampled rows.

    Parameters
    ----------
    array : numpy.ndarray
        The whole tensor, as codecs see it.
    reference : numpy.ndarray
        The same tensor of the base, of that shape and dtype.
    alone : LosslessPlan
        What codes the tensor without a reference.
    """
    if array.size == 0:
        return alone
    if np.array_equal(as_words(array), as_words(reference)):
        return LosslessPlan(parse_tree(_EQUAL), "equal to the base")
    sample, known = (_sample(part, _MOSTLY_SAMPLE) for part in (array, reference))
    same = np.count_nonzero(as_words(sample) == as_words(known)) / sample.size
    if same <= _MOSTLY_SAME:
        sample, known = (_sample(part, _SAMPLE) for part in (array, reference))
    parts = array.size / sample.size
    best, least = alone, parts * _size(alone.tree, sample, None)
    for text in _forms(sample, known, same):
        tree = parse_tree(text)
        size = _size(tree, sample, known, parts)
        if size < least:
            best, least = LosslessPlan(tree, _REASON), size
    return best


def _sample(array: np.ndarray, elements: int) -> np.ndarray:
    return readable(sample_rows(array, elements) if array.ndim else array)


def _forms(sample: np.ndarray, reference: np.ndarray, same: float) -> Iterator[str]:
    """Yield texts of trees, those with predictions only where they can pay."""
    yield _EQUAL
    yield "difference"
    if same > _MOSTLY_SAME or not holds_floats(sample.dtype) or sample.size < _MIN_PREDICTED:
        return
    if sample.itemsize == _SINGLE:
        yield "difference(decay=true)"
    if (rank := _rank_of(sample, reference)) > 0:
        yield f"difference({rank}, levels=false)"
        yield f"difference({rank})"


def _rank_of(sample: np.ndarray, reference: np.ndarray) -> int:
    """Return after how many singular values the difference of a matrix falls most; 0 if little."""
    new, old = as_rows(sample), as_rows(reference)
    if new.shape[0] > _RANK_ROWS:
        new, old = (part[:: new.shape[0] // _RANK_ROWS] for part in (new, old))
    with np.errstate(all="ignore"):
        change = new.astype(np.float64) - old.astype(np.float64)
    if not np.isfinite(change).all() or min(change.shape) < _MIN_SIDE:
        return 0
    if change.shape[0] > change.shape[1]:
        change = change.T
    with one_thread():
        energies = np.maximum(np.linalg.eigvalsh(change @ change.T)[::-1], 0.0)
    energies = energies[: min(MAX_RANK, len(energies) // 2) + 1]
    falls = energies[:-1] / np.maximum(energies[1:], _NOISE * energies[0] + _MIN_ENERGY)
    return int(np.argmax(falls)) + 1 if falls.max() > _FALL else 0


def _size(
    tree: Node, sample: np.ndarray, reference: np.ndarray | None, parts: float = 1.0
) -> float:
    """Return the bytes of so many samples, and of what they share."""
    try:
        shared = fit(tree, sample, reference)
        coded = byte_count(encode(tree, sample, shared, reference=reference))
    except NotRepresentable:
        return math.inf
    return parts * coded + (len(pack_shared(shared)) if reference is not None else 0)
