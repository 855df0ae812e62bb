"""Plan lossless trees of tensors of which a base has the same.

Forms of `difference` compete with the tree that codes the tensor alone, by the bytes that each
makes of the same sampled rows. A tensor's update may touch a few rows only, as that of embeddings
does: then a sample of rows may miss them all, and any form is as good as nothing.
"""

from __future__ import annotations

import math

import numpy as np

from tensorcomp.codecs.bit_views import as_words, readable
from tensorcomp.codecs.payload import byte_count, encode
from tensorcomp.codecs.text import parse_tree
from tensorcomp.codecs.tree import Node, fit
from tensorcomp.errors import NotRepresentable
from tensorcomp.planning.lossless import LosslessPlan, sample_rows

_EQUAL = 'difference(levels="none")'
_FORMS = {
    "fast": (_EQUAL, 'difference(levels="rows")'),
    "balanced": (_EQUAL, 'difference(levels="rows")', "difference"),
    "max": (_EQUAL, 'difference(levels="rows")', "difference"),
}
_SAMPLE = 1 << 18  # elements: where a thousandth of them changed, some hundreds show how
_REASON = "difference to the base"


def plan_with_reference(
    array: np.ndarray, reference: np.ndarray, alone: LosslessPlan, effort: str
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
    effort : str
        ``fast``, ``balanced`` or ``max``.
    """
    if array.size == 0:
        return alone
    if np.array_equal(as_words(array), as_words(reference)):
        return LosslessPlan(parse_tree(_EQUAL), "equal to the base")
    sample, known = (_sample(readable(a)) for a in (array, reference))
    best, least = alone, _size(alone.tree, sample, None)
    for text in _FORMS[effort]:
        tree = parse_tree(text)
        size = _size(tree, sample, known)
        if size < least:
            best, least = LosslessPlan(tree, _REASON), size
    return best


def _sample(array: np.ndarray) -> np.ndarray:
    """Return rows evenly spaced; elements in a row of a vector, where contexts are neighbours."""
    return readable(sample_rows(array, _SAMPLE)) if array.ndim else array


def _size(tree: Node, sample: np.ndarray, reference: np.ndarray | None) -> float:
    try:
        shared = fit(tree, sample, reference)
        return byte_count(encode(tree, sample, shared, reference=reference))
    except NotRepresentable:
        return math.inf
