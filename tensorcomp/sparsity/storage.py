"""Measure what a tensor's zeros save: its bytes under each sparse layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tensorcomp.codecs.bit_views import as_words, readable
from tensorcomp.codecs.payload import byte_count, encode
from tensorcomp.codecs.strategy import Strategy
from tensorcomp.codecs.text import format_tree, parse_tree
from tensorcomp.container.chunk_grid import ChunkGrid, chunk_grid
from tensorcomp.dtypes import dtype_name
from tensorcomp.pipeline.strategies import code
from tensorcomp.planning.lossless import any_tree, sparse_sample
from tensorcomp.planning.sparse_forms import VALUES, sparse_forms

STORAGES = ("dense", "bitmap", "gaps", "packed", "live", "entropy")
_EFFORT = "balanced"
_BITMAP = f"sparse(mask=bitpack, values={VALUES})"
_GAPS = f"sparse(mask=gaps, values={VALUES})"
_FEW = 256  # values that may have a table
_CODES = ("ans(states=12)", "huffman", "bitpack")


@dataclass(frozen=True)
class StorageBytes:
    """The bytes of a tensor's blob under each storage, all really encoded.

    ==========  ===================================================================================
    storage     is
    ==========  ===================================================================================
    dense       every element, zeros too
    bitmap      a bit an element, and the values that are not zero
    gaps        Huffman codes of the distances between values
    packed      n values of each m neighbours, and which ones, where no group has more
    live        rows and columns that hold anything, where others do not; a bitmap for what is left
    entropy     what the lossless planner chooses: masks and values by their frequencies
    ==========  ===================================================================================

    All but the last code the values by one tree, so that they differ in the mask alone.

    Parameters
    ----------
    sizes : mapping of str to int
        By storage, in the order of `STORAGES`, without those that the tensor has no structure for.
    values : str
        The tree of the values.
    pattern : tuple of int or None
        (n, m) of the packed storage.
    """

    sizes: Mapping[str, int]
    values: str
    pattern: tuple[int, int] | None = None

    @property
    def best(self) -> str:
        """The storage of the fewest bytes; of equal ones the first."""
        return min(self.sizes, key=lambda name: self.sizes[name])


def storage_bytes(array: np.ndarray) -> StorageBytes:
    """Measure a tensor's bytes under each storage.

    Rows and columns are dropped, and groups packed, where the planner would do so. Where weights
    were multiplied by a mask there are zeros of both signs: to restore them all storages take a bit
    a zero more.

    Parameters
    ----------
    array : numpy.ndarray
        Of a dtype that safetensors has.

    Raises
    ------
    TypeError
        If the dtype is another.

    Examples
    --------
    >>> weights = np.zeros((64, 64), np.float32)
    >>> weights[::16] = np.random.default_rng(0).standard_normal((4, 64))
    >>> storage_bytes(weights).best
    'live'
    """
    grid = chunk_grid(dtype_name(array.dtype), array.shape, array.nbytes)
    seen = readable(array).reshape(-1).view(np.uint8).view(grid.dtype).reshape(grid.shape)
    sample = sparse_sample(seen, _EFFORT) if seen.ndim else seen
    layouts: dict[str, tuple[str, ...]]
    layouts = {"dense": (VALUES,), "bitmap": (_BITMAP,), "gaps": (_GAPS,)}
    signs = pattern = None
    if seen.size:
        forms = sparse_forms(seen, sample, _EFFORT)
        signs = forms.signs
        if forms.packed and seen.ndim > 1:
            packed = parse_tree(forms.packed[0].replace(VALUES, "raw")).codec.config()
            pattern = packed["keep"], packed["group"]
            layouts["packed"] = forms.packed[:1]
        for live in forms.whole[1:]:
            layouts["live"] = live, live.replace(VALUES, _BITMAP)
    values = _values_tree(sample)
    outer = VALUES if signs is None else f"zeros(signs={signs}, values={VALUES})"

    def size(layout: str) -> int:
        return _bytes(outer.replace(VALUES, layout).replace(VALUES, values), seen, grid)

    sizes = {name: min(map(size, several)) for name, several in layouts.items()}
    sizes["entropy"] = _bytes("", seen, grid)
    return StorageBytes(sizes, values, pattern)


def _values_tree(sample: np.ndarray) -> str:
    """Return the smallest tree for the elements that are not zero."""
    with np.errstate(invalid="ignore"):  # signalling NaN
        left = np.asarray(sample[sample != 0])
    trees = [format_tree(any_tree(sample.dtype, _EFFORT))]
    if sample.dtype.kind in "iu" and sample.itemsize <= 2:
        trees += _CODES
    elif sample.itemsize > 1 and np.unique(as_words(left)).size <= _FEW:
        trees += [f"palette(table=raw(bytes=zstd), codes={codes})" for codes in _CODES]
    return min(trees, key=lambda tree: byte_count(encode(parse_tree(tree), left)))


def _bytes(tree: str, array: np.ndarray, grid: ChunkGrid) -> int:
    """Return the bytes of a tensor's blob under a tree or the planner's own."""
    return code(Strategy(tree or "lossless", tree, effort=_EFFORT), array, grid, 1.0).nbytes
