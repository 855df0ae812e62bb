"""Trees for tensors with many zeros, chosen by where the zeros lie.

A form is the text of a tree in which ``$values`` stands for the tree of what is left: of the rows
and columns that hold anything (`live`), of the elements that are not zero (`sparse`), of those that
each group of neighbours may have (`packed`). Zeros of a pruned tensor are no small numbers but
weights that are gone: whatever is lost of the others, they stay zeros. Half of them are −0.0 where
weights were multiplied by a mask; then the signs are stored apart (`zeros`), or lost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from tensorcomp.codecs.bit_views import as_rows, as_words, readable
from tensorcomp.codecs.payload import byte_count, encode
from tensorcomp.codecs.text import parse_tree
from tensorcomp.codecs.tree import Node
from tensorcomp.dtypes import holds_floats
from tensorcomp.errors import NotRepresentable
from tensorcomp.kernels import native
from tensorcomp.planning.steps import is_free, prototype

VALUES = "$values"
MANY = 0.05  # share of zeros from which they are coded apart
PATTERNS = ((1, 4), (2, 4), (4, 8))  # n of m, those of fewer bits first
_LIVE_ROWS = f"live(values={VALUES})"
_DEAD = 0.02  # share of rows or columns from which dropping them pays
_SIGNED = 0.01  # share of −0.0 among the zeros from which signs are stored
_PIECE = 1 << 20  # elements looked at together
_MASKS = ("bitpack", "runlength", "gaps")  # the faster first
_SLOW_MASKS = ("ans(states=12)", "ans(contexts=16, states=12)")
_WORTH = 0.98  # times the bytes of a faster one that a mask may take
_MIN_POSITIVE = 5e-324  # smallest number above 0
_WITH_ZEROS = ("uniform($step)", "uniform($step, codes=ans(states=12))")


class SparseForms(NamedTuple):
    """Forms for a tensor.

    Parameters
    ----------
    whole : tuple of str
        Those whose values are an array with axes of its own, still with many zeros perhaps.
    dense : tuple of str
        Those of them that leave few zeros.
    flat : tuple of str
        Those whose values are flat and have no zeros.
    packed : tuple of str
        Those whose values are a matrix of all that each group of neighbours may have.
    signs : str or None
        Coder of the zeros' signs, which the forms leave out; None if all are +0.0, or nearly.
    """

    whole: tuple[str, ...]
    dense: tuple[str, ...]
    flat: tuple[str, ...]
    packed: tuple[str, ...]
    signs: str | None = None

    def lossless(self) -> SparseForms:
        """Return the forms that restore every bit: with signs, if there are any."""
        if self.signs is None:
            return self

        outer = f"zeros(signs={self.signs}, values={VALUES})"
        whole, dense, flat, packed = (
            tuple(outer.replace(VALUES, form) for form in forms) for forms in self[:4]
        )
        return SparseForms(whole, dense, flat, packed)

    def lossy(self) -> SparseForms:
        """Return the forms that make all zeros +0.0, if they are not."""
        if self.signs is None:
            return self
        flat = tuple(
            form.replace("sparse(", f"threshold({_MIN_POSITIVE}, ") for form in self.flat[:1]
        )
        packed = tuple(form.replace("packed(", "nm(") for form in self.packed[:1])
        return SparseForms((VALUES,), (), flat, packed)


def sparse_forms(array: np.ndarray, sample: np.ndarray, effort: str) -> SparseForms:
    """Return the forms that suit a tensor.

    Parameters
    ----------
    array : numpy.ndarray
        The whole tensor; all of it is looked at only while it may have a structure.
    sample : numpy.ndarray
        Some of its rows, evenly spaced; many, since what is stored for each column weighs the more
        the fewer there are.
    effort : str
    """
    words = as_words(readable(sample))
    kept, signs = int(np.iinfo(words.dtype).max), None
    if holds_floats(array.dtype) and (negative := signs_of_zeros(words, kept // 2)) is not None:
        kept, signs = kept // 2, cheapest_mask(negative, effort)
        words = words & words.dtype.type(kept)
    forms = list(_live_forms(as_words(array), words, kept))
    dense, flat = [], []
    for form, left in forms:
        mask = left != 0
        if np.count_nonzero(mask) >= (1 - MANY) * left.size:
            dense.append(form)
        else:
            coder = cheapest_mask(readable(mask), effort)
            flat.append(form.replace(VALUES, f"sparse(mask={coder}, values={VALUES})"))
    pattern = group_pattern(array, kept)
    whole = tuple(form for form, _ in forms)
    packed: tuple[str, ...] = ()
    if pattern is not None:
        # Groups stay what they are where rows are cut away, but not where columns are.
        rows = [_LIVE_ROWS] if whole[-1].startswith("live(values=") else []
        form = f"packed({pattern[0]}, {pattern[1]}, values={VALUES})"
        packed = tuple(outer.replace(VALUES, form) for outer in (VALUES, *rows))
    return SparseForms(whole, tuple(dense), tuple(flat), packed, signs)


def signs_of_zeros(words: np.ndarray, below: int) -> np.ndarray | None:
    """Return the signs of all zeros, true for −0.0; None if nearly all are +0.0.

    `below` has all bits but that of the sign.
    """
    zeros = words[(words & words.dtype.type(below)) == 0]
    negative = readable(zeros != 0)
    return negative if np.count_nonzero(negative) > _SIGNED * zeros.size else None


def _live_forms(
    array: np.ndarray, sample: np.ndarray, kept: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the form of the whole sample, and one without dead rows and columns.

    With each, what it leaves of a sample.
    """
    yield VALUES, sample
    if array.ndim < 2 or not sample.size:
        return
    form = VALUES
    rows = sample.reshape(sample.shape[0], -1).any(axis=1)
    if rows.mean() <= 1 - _DEAD:
        form, sample = _LIVE_ROWS, sample[rows]
    # A column of a few rows may be empty by chance.
    if sample.size and live_columns(sample, kept).mean() <= 1 - _DEAD:
        columns = live_columns(array, kept)
        if columns.mean() <= 1 - _DEAD:
            form, sample = form.replace(VALUES, f"live(1, values={VALUES})"), sample[:, columns]
    if form != VALUES:
        yield form, sample


def live_columns(words: np.ndarray, kept: int) -> np.ndarray:
    """Return which slices of the second axis hold a bit of `kept`: (n,) bool.

    Rows are read, a piece at a time, only while some slice seems to hold none.
    """
    found = np.zeros((words.shape[1], math.prod(words.shape[2:])), words.dtype)
    step = max(_PIECE // max(found.size, 1), 1)
    for start in range(0, len(words), step):
        piece = words[start : start + step]
        found |= np.bitwise_or.reduce(piece.reshape(len(piece), -1), axis=0).reshape(found.shape)
        found &= words.dtype.type(kept)
        if found.any(axis=1).all():
            break
    return np.asarray(found.any(axis=1))


def cheapest_mask(mask: np.ndarray, effort: str) -> str:
    """Return the coder of the fewest bytes of a mask, the first of equal ones.

    With less than all effort, coders that take longer must be worth it.
    """
    found, least = "raw", math.inf
    for coder in _MASKS if effort == "fast" else (*_MASKS, *_SLOW_MASKS):
        try:
            size = byte_count(encode(parse_tree(coder), mask))
        except NotRepresentable:
            continue
        if size < least * (1.0 if effort == "max" else _WORTH):
            found, least = coder, size
    return found


def group_pattern(array: np.ndarray, kept: int) -> tuple[int, int] | None:
    """Return (n, m) if no group of m neighbours in a row has over n non-zeros.

    Of `PATTERNS` the first one that holds for the whole tensor; None if none does. Only the bits of
    an element that `kept` has are looked at.
    """
    rows = readable(as_rows(as_words(array)))
    found = (pair for pair in PATTERNS if native.sparse_is_grouped(rows, kept, *pair))
    return next(found, None)


def keeps_zeros(node: Node) -> bool:
    """Return whether a tree decodes every zero to a zero, whatever else it loses."""
    if node.lossless:
        return True
    lossy = {part for part, child in node.children if not child.lossless}
    match node.codec.zeros:
        case "kept":
            return not lossy
        case "apart":
            return lossy <= {"values"}
        case "passed on":
            return lossy <= {"values"} and keeps_zeros(dict(node.children)["values"])
    return False


def zero_keeping(
    templates: Iterable[str], array: np.ndarray, sample: np.ndarray, effort: str
) -> tuple[str, ...]:
    """Return the templates for a tensor with many zeros: all of them keep these.

    Quantizers of single elements are put into the forms that suit the tensor; other templates stay
    if they keep zeros. Their quantizers are written out.
    """
    forms = sparse_forms(array, sample, effort).lossy()
    found = dict.fromkeys(_in_forms(templates, forms, effort))
    return tuple(template for template in found if keeps_zeros(prototype(template)))


def _in_forms(templates: Iterable[str], forms: SparseForms, effort: str) -> Iterator[str]:
    for template in templates:
        yield template
        if not prototype(template).codec.elementwise:
            continue
        inner = [template]
        if is_free(template) and effort != "fast":
            inner += _WITH_ZEROS
        for tree in inner:
            for form in (*forms.whole, *forms.packed):
                yield form.replace(VALUES, tree)
        for form in forms.flat:
            yield form.replace(VALUES, template)
