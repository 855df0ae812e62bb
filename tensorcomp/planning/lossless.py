"""The lossless planner: find what the data allow, try it on a sample, keep the smallest.

Ordinary float weights, which most tensors are, have one good tree and are not tried. Only where a
look at some thousand elements shows something else (zeros, few distinct values, a grid of integers,
no floats at all) do trees compete, by the bytes that each makes of the sample.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tensorcomp.codecs.bit_views import readable, word_dtype
from tensorcomp.codecs.payload import byte_count, encode
from tensorcomp.codecs.quantize.grid import IntegerGrid
from tensorcomp.codecs.registry import added_templates
from tensorcomp.codecs.text import parse_tree
from tensorcomp.codecs.tree import Node, fit
from tensorcomp.dtypes import holds_floats
from tensorcomp.errors import NotRepresentable
from tensorcomp.kernels import native
from tensorcomp.planning.float_trees import any_floats, flat_tree, usual_tree
from tensorcomp.planning.sparse_forms import MANY, VALUES, sparse_forms

EFFORTS = ("fast", "balanced", "max")

_SMALL = 4096  # elements; below it a tensor's own tables cost more than they save
_TINY = 64
_PROBE = 1024  # elements looked at to tell what kind of data there is
_RUNS = 16, 64  # of them, as the kernel `survey_look` does
_MORE_RUNS = 64, 16  # which hardly all miss the rows that are zero
_FEW_DISTINCT = 256  # of the probe
_GRID_ROWS = 2
_GRID = IntegerGrid()
_SAMPLE = {"fast": 1 << 16, "balanced": 1 << 16, "max": 1 << 18}
_SPARSE_SAMPLE = 1 << 18  # as many where zeros are told apart: masks are coded column by column
_SAMPLE_ROWS = 64  # so that columns can be told apart
_ADDED = "best of another package's codecs"


@dataclass(frozen=True)
class LosslessPlan:
    """What a tensor is coded by, and why.

    Parameters
    ----------
    tree : Node
    why : str
        A few words.
    fallback : Node, optional
        For chunks that `tree` cannot represent exactly; it can represent any.
    """

    tree: Node
    why: str
    fallback: Node | None = None


@dataclass(frozen=True)
class _Candidate:
    text: str
    why: str


# How integers are coded: in contexts of row and column scale, and without.
_CODES = {
    "fast": "huffman",
    "balanced": "huffman(contexts=8)",
    "max": "ans(contexts=16, states=12)",
}
# How those are with many zeros: a Huffman code takes a bit for each.
_CODES_OF_ZEROS = {
    "fast": (),
    "balanced": ("ans(states=12)", "ans(contexts=16, states=12)"),
    "max": ("ans(states=12)", "ans(contexts=16, states=12)"),
}
_FLAT_CODES = {"fast": "huffman", "balanced": "huffman", "max": "ans(states=12)"}


def any_tree(dtype: np.dtype, effort: str) -> Node:
    """Return a lossless tree that can represent any array of a dtype."""
    is_float = holds_floats(dtype) and dtype.itemsize <= 8
    return parse_tree(any_floats(dtype, effort) if is_float else "raw(bytes=zstd)")


def sample_rows(array: np.ndarray, elements: int = 1 << 16) -> np.ndarray:
    """Return rows (of a matrix) or elements, evenly spaced over the tensor: a view.

    At least 64 rows where there are as many, so that columns can be told apart.
    """
    row = math.prod(array.shape[1:])
    wanted = max(elements // max(row, 1), _SAMPLE_ROWS)
    return array[:: max(1, array.shape[0] // wanted)]


def plan_lossless(array: np.ndarray, effort: str) -> LosslessPlan:
    """Return the tree for a tensor, the smallest on a sample of those that fit its data.

    Parameters
    ----------
    array : numpy.ndarray
        The whole tensor as codecs see it, its own shape or (elements,).
    effort : str
        ``fast``, ``balanced`` or ``max``.
    """
    if array.size == 0:
        return _plan("raw", "empty")
    words = array.view(word_dtype(array.dtype))
    if native.survey_all_equal(words.reshape(-1)):
        return _plan("constant", "all elements are equal")
    is_float = holds_floats(array.dtype)
    if array.size < _SMALL:
        return _small(array, words, effort) if is_float else _plan("raw(bytes=zstd)", "small")
    zeros, distinct = probe(words)
    if is_float:
        zeros += _negative_zeros(words)
        candidates = list(_floats(array, zeros, distinct, effort))
    else:
        candidates = list(_others(array, distinct, effort))
    candidates += [_Candidate(text, _ADDED) for text in added_templates(lossless=True)]
    if zeros > MANY and (is_float or array.itemsize <= 2):
        return _sparse(array, candidates, zeros, effort)
    if len(candidates) == 1:
        return _plan(candidates[0].text, candidates[0].why)
    fallback = any_tree(array.dtype, effort)
    return _smallest(sample_rows(array, _SAMPLE[effort]), candidates, fallback)


@functools.lru_cache(maxsize=64)
def _plan(text: str, why: str) -> LosslessPlan:
    return LosslessPlan(parse_tree(text), why)


def _small(array: np.ndarray, words: np.ndarray, effort: str) -> LosslessPlan:
    """Return the tree of a few floats: more than one table would cost more than it saves."""
    if array.size < _TINY:
        return _plan("raw", "tiny")
    usual = _Candidate(flat_tree(array.dtype), "small")
    zeros = _zeros_of_few(words, is_float=True)
    if zeros <= MANY:
        return _plan(usual.text, usual.why)
    return _sparse(array, [usual], zeros, effort)


def share_of_zeros(array: np.ndarray) -> float:
    """Return which part of a tensor's elements is zero: of a large tensor, of a thousand."""
    words = array.view(word_dtype(array.dtype))
    is_float = holds_floats(array.dtype)
    if array.size < _SMALL:
        return _zeros_of_few(words, is_float=is_float)
    return probe(words)[0] + (_negative_zeros(words) if is_float else 0.0)


def _zeros_of_few(words: np.ndarray, *, is_float: bool) -> float:
    values = np.count_nonzero(words << words.dtype.type(1) if is_float else words)
    return 1 - values / max(words.size, 1)


def _negative_zeros(words: np.ndarray) -> float:
    """Return the share of words of which only the highest bit is set in a thousand of a tensor."""
    return _share_of(1 << (8 * words.itemsize - 1), words.reshape(-1), *_RUNS)


def _share_of(word: int, words: np.ndarray, runs: int, length: int) -> float:
    """Return the share of one word among those in runs of (n,), spread over the tensor."""
    return native.survey_count(words, word, runs, length) / (runs * length)


def probe(words: np.ndarray) -> tuple[float, int]:
    """Return the share of zeros and the number of distinct words in a thousand of a tensor.

    Where there seem to be few zeros, another thousand is looked at: whole rows may be zero.
    """
    flat, found = words.reshape(-1), np.empty(2, np.int64)
    native.survey_look(flat, found)
    zeros = int(found[0]) / math.prod(_RUNS)
    if zeros <= MANY:
        zeros = max(zeros, _share_of(0, flat, *_MORE_RUNS))
    return zeros, int(found[1])


def sparse_sample(array: np.ndarray, effort: str) -> np.ndarray:
    """Return rows to tell apart what to do with zeros."""
    return sample_rows(array, max(_SPARSE_SAMPLE, _SAMPLE[effort]))


def _floats(array: np.ndarray, zeros: float, distinct: int, effort: str) -> Iterator[_Candidate]:
    """Yield what may suit floats; more than the usual tree only where the probe shows why."""
    codes = _CODES[effort]
    yield _Candidate(usual_tree(array, effort), "ordinary floats")
    if array.itemsize == 1:
        yield _Candidate(_FLAT_CODES[effort], "floats of a byte, coded whole")
    if array.itemsize > 1 and distinct <= _FEW_DISTINCT and zeros <= MANY:
        yield _Candidate(
            f"palette(table=raw(bytes=zstd), codes={codes})", f"few values: {distinct} in a probe"
        )
    if _is_grid(array):
        scales = "fields(2, exponent=huffman, mantissa=bitpack)"
        for bits in (8, 16):
            for coded in dict.fromkeys((codes, "ans(contexts=8)")):
                yield _Candidate(
                    f"grid({bits}, scales={scales}, codes={coded})", "integers times a scale"
                )


def _sparse(
    array: np.ndarray, candidates: Sequence[_Candidate], zeros: float, effort: str
) -> LosslessPlan:
    """Return the plan of a tensor with many zeros: the smallest candidate, or one for zeros."""
    sample = sparse_sample(array, effort)
    forms = sparse_forms(array, sample, effort).lossless()
    why = f"{zeros:.0%} of a probe are zero"
    usual = flat = _FLAT_CODES[effort]
    if holds_floats(array.dtype):
        usual, flat = usual_tree(array, effort), flat_tree(array.dtype)
    trees = [(form, usual) for form in (*forms.dense, *forms.packed)]
    trees += [(form, flat) for form in forms.flat]
    codes = dict.fromkeys((_CODES[effort], *_CODES_OF_ZEROS[effort]))
    alone = dict.fromkeys(("bitpack", _FLAT_CODES[effort], *_CODES_OF_ZEROS[effort][:1]))
    if array.itemsize == 1:
        trees += [(form, code) for form in forms.whole for code in codes]
    elif _has_few_values(sample):
        why += ", few values in the rest"
        trees += [(form, _palette(code)) for form in forms.whole for code in codes]
        trees += [(form, _palette(code)) for form in (*forms.flat, *forms.packed) for code in alone]
    grids = [candidate.text for candidate in candidates if candidate.text.startswith("grid(")]
    trees += [(form, grid) for form in forms.packed for grid in grids]
    found = [_Candidate(form.replace(VALUES, tree), why) for form, tree in trees]
    plan = _smallest(sample, [*candidates, *found], any_tree(array.dtype, effort))
    # What takes the whole tensor takes each chunk of it.
    return replace(plan, fallback=None) if sample.size == array.size else plan


def _palette(codes: str) -> str:
    return f"palette(table=raw(bytes=zstd), codes={codes})"


def _has_few_values(sample: np.ndarray) -> bool:
    """Return whether the elements of a sample that are not zero have few values."""
    words = sample.view(word_dtype(sample.dtype)).reshape(-1)
    values = words[words != 0]
    if values.size < _SMALL:
        return bool(np.unique(values).size <= max(values.size // 4, 1))
    return probe(values)[1] <= _FEW_DISTINCT


def _is_grid(array: np.ndarray) -> bool:
    """Return whether the first rows are integers times a scale; others fail within microseconds."""
    few = array[:_GRID_ROWS] if array.ndim > 1 else array[:_PROBE]
    try:
        _GRID.encode(few)
    except NotRepresentable:
        return False
    return True


def _others(array: np.ndarray, distinct: int, effort: str) -> Iterator[_Candidate]:
    """Yield what may suit integers and opaque bytes."""
    yield _Candidate("raw", "incompressible")
    yield _Candidate("raw(bytes=zstd)", "bytes that repeat")
    yield _Candidate("bitpack", "integers of few bits")
    yield _Candidate("runlength", "runs of equal values")
    if array.itemsize <= 2:
        yield _Candidate(_CODES[effort], "integers coded by frequency")
    if array.itemsize > 1 and distinct <= _FEW_DISTINCT:
        yield _Candidate(f"palette(table=raw(bytes=zstd), codes={_CODES[effort]})", "few values")


def _smallest(sample: np.ndarray, candidates: list[_Candidate], fallback: Node) -> LosslessPlan:
    """Return the candidate that makes the fewest bytes of the sample."""
    best: tuple[int, LosslessPlan] | None = None
    for candidate in candidates:
        tree = parse_tree(candidate.text)
        size = _trial(tree, sample)
        if size is not None and (best is None or size < best[0]):
            best = size, LosslessPlan(tree, candidate.why, fallback)
    if best is None or best[0] >= sample.nbytes:
        return _plan("raw", "incompressible")
    plan = best[1]
    return plan if _may_fail(plan.tree, sample) else LosslessPlan(plan.tree, plan.why)


def _trial(tree: Node, sample: np.ndarray) -> int | None:
    """Return the bytes that a tree makes of an array; None if it cannot represent it."""
    array = readable(sample)
    try:
        shared = fit(tree, array)
        return byte_count(encode(tree, array, shared))
    except NotRepresentable:
        return None


def _may_fail(tree: Node, sample: np.ndarray) -> bool:
    """Return whether a tree may fail on other chunks of the tensor."""
    return any(codec.may_refuse for codec in tree.walk())
