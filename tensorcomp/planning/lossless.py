"""Plan lossless trees: try those that fit a sample, keep the smallest.

Ordinary float weights, which most tensors are, have one good tree and are not tried. Only where a
look at some thousand elements shows something else (zeros, few distinct values, a grid of integers,
no floats at all) do trees compete, by the bytes that each makes of the sample.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tensorcomp.codecs.bit_views import as_rows, readable, word_dtype
from tensorcomp.codecs.payload import byte_count, encode
from tensorcomp.codecs.quantize.ggml_blocks import BLOCKS
from tensorcomp.codecs.quantize.grid import IntegerGrid
from tensorcomp.codecs.registry import added_templates
from tensorcomp.codecs.text import parse_tree
from tensorcomp.codecs.tree import Node, fit
from tensorcomp.dtypes import holds_floats
from tensorcomp.errors import NotRepresentable
from tensorcomp.kernels import native
from tensorcomp.planning.block_trees import block_tree, whole_blocks
from tensorcomp.planning.sparse_forms import MANY, VALUES, sparse_forms

EFFORTS = ("fast", "balanced", "max")

_SMALL = 4096  # elements; below it a tensor's own tables cost more than they save
_TINY = 64
_PROBE = 1024  # elements from which the kind of data is inferred
_RUNS = 16, 64  # of them, as the kernel `survey_look` does
_MORE_RUNS = 64, 16  # which hardly all miss the rows that are zero
_FEW_DISTINCT = 256  # of the probe
_GRID_ROWS = 2
_GRID = IntegerGrid()
_SAMPLE = {"fast": 1 << 16, "balanced": 1 << 16, "max": 1 << 18}
_SPARSE_SAMPLE = 1 << 18  # as many for trees of zeros: masks are coded column by column
_SAMPLE_ROWS = 64  # so that columns differ visibly
_ONE_BYTE = 4  # bytes of floats whose exponents fit a byte
_COLUMNS_MATTER = 0.25  # of what the weights of a column vary
_GROUPS = {"fast": 2, "balanced": 4}  # each has a table of its own; eight take 0.05 % less
_BYTES = "raw(bytes=zstd)"

# How integers are coded: in contexts of row and column scale, and without.
_CODES = {
    "fast": "huffman",
    "balanced": "huffman(contexts=8)",
    "max": "ans(contexts=16, states=12)",
}
_FLAT_CODES = {"fast": "huffman", "balanced": "huffman", "max": "ans(states=12)"}
# How those are with many zeros: a Huffman code takes a bit for each.
_CODES_OF_ZEROS = ("ans(states=12)", "ans(contexts=16, states=12)")


class LosslessPlan(NamedTuple):
    """Tree of a tensor, the reason, and a fallback for chunks it cannot code."""

    tree: Node
    reason: str
    fallback: Node | None = None


@functools.cache
def any_tree(dtype: np.dtype, effort: str) -> Node:
    """Return a lossless tree that can represent any array of a dtype."""
    is_float = holds_floats(dtype) and dtype.itemsize <= 8
    return parse_tree(any_floats(dtype, effort) if is_float else _BYTES)


def sample_rows(array: np.ndarray, elements: int = 1 << 16) -> np.ndarray:
    """Return a view of at least 64 rows (of a matrix) or elements, evenly spaced."""
    row = math.prod(array.shape[1:])
    wanted = max(elements // max(row, 1), _SAMPLE_ROWS)
    return array[:: max(1, array.shape[0] // wanted)]


def sparse_sample(array: np.ndarray, effort: str) -> np.ndarray:
    """Return rows on which trees for zeros are compared."""
    return sample_rows(array, max(_SPARSE_SAMPLE, _SAMPLE[effort]))


def plan_lossless(array: np.ndarray, effort: str, dtype: str = "") -> LosslessPlan:
    """Return the plan of a tensor: of trees that fit, the smallest on a sample.

    Parameters
    ----------
    array : numpy.ndarray
        The whole tensor as codecs see it, its own shape or (elements,).
    effort : str
        ``fast``, ``balanced`` or ``max``.
    dtype : str, optional
        Name of the stored type, where the array has its bytes.
    """
    if array.size == 0:
        return _plan("raw", "empty")
    words = array.view(word_dtype(array.dtype))
    if native.survey_all_equal(words.reshape(-1)):
        return _plan("constant", "all elements are equal")
    is_float = holds_floats(array.dtype)
    if array.size < _SMALL:
        return _small(array, effort) if is_float else _plan(_BYTES, "small")
    zeros, distinct = probe(words)
    if is_float:
        zeros += _negative_zeros(words)
        candidates = dict(_floats(array, zeros, distinct, effort))
    else:
        candidates = dict(_others(array, distinct, effort))
    if dtype in BLOCKS:
        blocks = whole_blocks(array, dtype)
        candidates[block_tree(blocks, dtype, effort)] = f"blocks of {dtype}"
        return _smallest(blocks, candidates, any_tree(array.dtype, effort))
    for text in added_templates(lossless=True):
        candidates.setdefault(text, "best of another package's codecs")
    if zeros > MANY and (is_float or array.itemsize <= 2):
        return _sparse(array, candidates, zeros, effort)
    if len(candidates) == 1:
        return _plan(*candidates.popitem())
    fallback = any_tree(array.dtype, effort)
    return _smallest(sample_rows(array, _SAMPLE[effort]), candidates, fallback)


@functools.lru_cache(maxsize=64)
def _plan(text: str, reason: str) -> LosslessPlan:
    return LosslessPlan(parse_tree(text), reason)


def _small(array: np.ndarray, effort: str) -> LosslessPlan:
    """Return the tree of few floats, of one table: more cost more than they save."""
    if array.size < _TINY:
        return _plan("raw", "tiny")
    usual, zeros = flat_tree(array.dtype), share_of_zeros(array)
    return (
        _sparse(array, {usual: "small"}, zeros, effort) if zeros > MANY else _plan(usual, "small")
    )


def share_of_zeros(array: np.ndarray) -> float:
    """Return the share of zeros, of a large tensor in a thousand elements."""
    words = array.view(word_dtype(array.dtype))
    is_float = holds_floats(array.dtype)
    if array.size < _SMALL:
        values = np.count_nonzero(words << words.dtype.type(1) if is_float else words)
        return 1 - values / max(words.size, 1)
    return probe(words)[0] + (_negative_zeros(words) if is_float else 0.0)


def has_few_values(array: np.ndarray) -> bool:
    """Return whether elements have few values, or are few themselves."""
    few = array.size < _SMALL
    return few or probe(array.view(word_dtype(array.dtype)))[1] <= _FEW_DISTINCT


def _negative_zeros(words: np.ndarray) -> float:
    """Return the share of −0.0 in a thousand words of a tensor."""
    found = native.survey_count(words.reshape(-1), 1 << (8 * words.itemsize - 1), *_RUNS)
    return found / math.prod(_RUNS)


def probe(words: np.ndarray) -> tuple[float, int]:
    """Return the share of zeros and number of distinct words in a thousand words."""
    flat, found = words.reshape(-1), np.empty(2, np.int64)
    native.survey_look(flat, found)
    zeros = int(found[0]) / math.prod(_RUNS)
    if zeros <= MANY:  # whole rows may be zero
        zeros = max(zeros, native.survey_count(flat, 0, *_MORE_RUNS) / math.prod(_MORE_RUNS))
    return zeros, int(found[1])


def _floats(
    array: np.ndarray, zeros: float, distinct: int, effort: str
) -> Iterator[tuple[str, str]]:
    """Yield trees for floats and reasons; beside the usual one, those probed for."""
    codes = _CODES[effort]
    yield usual_tree(array, effort), "ordinary floats"
    if array.itemsize == 1:
        yield _FLAT_CODES[effort], "floats of a byte, coded whole"
    if array.itemsize > 1 and distinct <= _FEW_DISTINCT and zeros <= MANY:
        yield _palette(codes), f"few values: {distinct} in a probe"
    if _is_grid(array):
        scales = "fields(2, exponent=huffman, mantissa=bitpack)"
        for bits in (8, 16):
            for coded in (codes, "ans(contexts=8)"):
                text = f"grid({bits}, scales={scales}, codes={coded})"
                yield text, "integers times a scale"


def _others(array: np.ndarray, distinct: int, effort: str) -> Iterator[tuple[str, str]]:
    """Yield trees for integers and opaque bytes, and why."""
    yield "raw", "incompressible"
    yield _BYTES, "bytes that repeat"
    yield "bitpack", "integers of few bits"
    yield "runlength", "runs of equal values"
    if array.itemsize <= 2:
        yield _CODES[effort], "integers coded by frequency"
    if array.itemsize > 1 and distinct <= _FEW_DISTINCT:
        yield _palette(_CODES[effort]), "few values"


def _palette(codes: str) -> str:
    return f"palette(table={_BYTES}, codes={codes})"


def _sparse(
    array: np.ndarray, candidates: dict[str, str], zeros: float, effort: str
) -> LosslessPlan:
    """Return the plan of a tensor with many zeros: a form for zeros if smallest."""
    sample = sparse_sample(array, effort)
    forms = sparse_forms(array, sample, effort).lossless()
    grids = [text for text in candidates if text.startswith("grid(")]
    reason = f"{zeros:.0%} of a probe are zero"
    usual = flat = _FLAT_CODES[effort]
    if holds_floats(array.dtype):
        usual, flat = usual_tree(array, effort), flat_tree(array.dtype)
    trees = [(form, usual) for form in (*forms.dense, *forms.packed)]
    trees += [(form, flat) for form in forms.flat]
    for_zeros = () if effort == "fast" else _CODES_OF_ZEROS
    codes = _CODES[effort], *for_zeros
    if array.itemsize == 1:
        trees += [(form, code) for form in forms.whole for code in codes]
    elif _has_few_values(sample):
        reason += ", few values in the rest"
        alone = "bitpack", _FLAT_CODES[effort], *for_zeros[:1]
        trees += [(form, _palette(code)) for form in forms.whole for code in codes]
        trees += [(form, _palette(code)) for form in (*forms.flat, *forms.packed) for code in alone]
    trees += [(form, grid) for form in forms.packed for grid in grids]
    for form, tree in trees:
        candidates.setdefault(form.replace(VALUES, tree), reason)
    plan = _smallest(sample, candidates, any_tree(array.dtype, effort))
    # A tree that takes the whole tensor takes each chunk of it.
    return plan._replace(fallback=None) if sample.size == array.size else plan


def _has_few_values(sample: np.ndarray) -> bool:
    """Return whether the elements of a sample that are not zero have few values."""
    words = sample.view(word_dtype(sample.dtype)).reshape(-1)
    values = words[words != 0]
    if values.size < _SMALL:
        return bool(np.unique(values).size <= max(values.size // 4, 1))
    return probe(values)[1] <= _FEW_DISTINCT


def _is_grid(array: np.ndarray) -> bool:
    """Return whether the first rows are integers times a scale."""
    try:  # what is none fails within microseconds
        _GRID.encode(array[:_GRID_ROWS] if array.ndim > 1 else array[:_PROBE])
    except NotRepresentable:
        return False
    return True


def _smallest(sample: np.ndarray, candidates: dict[str, str], fallback: Node) -> LosslessPlan:
    """Return the candidate that makes the fewest bytes of the sample."""
    array, least = readable(sample), sample.nbytes
    best = _plan("raw", "incompressible")
    for text, reason in candidates.items():
        tree = parse_tree(text)
        try:
            size = byte_count(encode(tree, array, fit(tree, array)))
        except NotRepresentable:
            continue
        if size < least:
            may_refuse = any(codec.may_refuse for codec in tree.walk())
            least, best = size, LosslessPlan(tree, reason, fallback if may_refuse else None)
    return best


def usual_tree(array: np.ndarray, effort: str) -> str:
    """Return the tree of ordinary floats, exponents in groups of rows or columns.

    Groups of rows are twice as fast as contexts of rows and columns, to which they lose up to 0.1
    bit a weight. Groups of columns save more where their scales vary.
    """
    has_groups = array.itemsize <= _ONE_BYTE
    if effort == "balanced" and has_groups and columns_vary(array) > _COLUMNS_MATTER:
        return f'groupfloats({_mantissa_bits(array.dtype)}, along="columns")'
    return any_floats(array.dtype, effort)


def any_floats(dtype: np.dtype, effort: str) -> str:
    """Return the tree that can represent any floats of up to 8 bytes."""
    bits = _mantissa_bits(dtype)
    if effort == "max":
        return f"fields({bits}, exponent=ans(contexts=16, states=12), mantissa=bitpack)"
    if dtype.itemsize > _ONE_BYTE:
        return f"floats({bits})" if effort == "balanced" else flat_tree(dtype)
    if effort == "fast" and dtype.itemsize == 4:
        return "groupfloats(0, groups=4)"  # three whole bytes are left of a weight
    if effort == "fast" and dtype != np.float16:
        bits = 0  # a whole byte is left of a bfloat16
    return f"groupfloats({bits}, groups={_GROUPS[effort]})"


def flat_tree(dtype: np.dtype) -> str:
    """Return the tree of floats whose rows and columns do not differ."""
    bits = _mantissa_bits(dtype)
    if dtype.itemsize <= _ONE_BYTE:
        return f"groupfloats({bits}, groups=1)"
    return f"floats({bits}, contexts=1)"


def _mantissa_bits(dtype: np.dtype) -> int:
    """Return how many mantissa bits join the exponent: 2 save 0.07 bit a weight."""
    return 3 if dtype == np.float16 else 2  # both parts of a float16 are whole bytes with three


def columns_vary(array: np.ndarray) -> float:
    """Return the ratio of variance between columns to that within, of log |w|."""
    variance = np.empty(1)
    native.survey_column_variance(as_rows(array.view(word_dtype(array.dtype))), variance)
    return float(variance[0])
