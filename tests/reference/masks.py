"""The transforms that store some elements, and where these are; all others are zero bits.

*sparse*, *topk*, *magnitude*, *threshold*: parts ``mask``, bool, of the array's shape, true where
there is an element, and ``values``, these, in row-major order. (A tree's text may call the mask of
topk and threshold ``indices``.)

*live*: parts ``mask``, bool, one a slice along `axis`, none if the array has no elements, and
``values``, the slices where it is true, in their order. *filter*: the same along axis 0. *channel*:
the same along axis 1; there are as many slices as there are bits in the hexadecimal field `keep`
or, if that is empty, c - round(sparsity × c) of c (half to even).

*block*: parts ``mask``, bool, (blocks down, blocks across) of the matrix; ``origin``, uint32, one
number, the rows of the first blocks that lie above the array; and ``values``, in row-major order of
the elements. Blocks have `height` × `width` elements, less at the lower and right edges.

*nm*, *packed*: parts ``mask``, one number for each run of `group` elements in a row of the matrix
(the last one of a row may be shorter), uint8, or uint16 for groups of more than 8: bit j tells
whether element j is there; and ``values``, (rows, elements of a row), `keep` of each run, or all of
a shorter last one.

*randomk*: parts ``state``, three uint64, and ``values``. The element at place i is there if the
number it draws is at most the third: mix(mix(first) + (second + i + 1) × 0x9E3779B97F4A7C15), all
modulo 2**64 (SplitMix64). There are none if there are no values.

*outliers*: parts ``positions``, int64, ascending; ``exact``, as many elements; and ``values``, of
the array's shape: the elements at the positions, in row-major order, are the exact ones.

*zeros*: parts ``signs``, bool, and ``values``, of the array's shape: each element that is zero but
for its top bit gets the next sign for that.
"""

import math

import numpy as np

from reference.codec import Parts, codec, matrix_shape, word_of

MASK_AND_VALUES = {"mask": "gaps", "values": "floats"}
INDICES = {"indices": "mask"}


def _put(parts: Parts, mask: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return words: values where a mask, spread over the array's shape, is true, 0 elsewhere."""
    words = np.zeros(parts.shape, word_of(parts.dtype))
    words[np.broadcast_to(mask, parts.shape)] = values.reshape(-1).view(words.dtype)
    return words


def _masked(parts: Parts) -> np.ndarray:
    mask = parts.read("mask", parts.shape, np.bool_)
    return _put(parts, mask, parts.read("values", (-1,), parts.dtype))


@codec("transform", "sparse", {"mask": "bitpack", "values": "fields"})
def sparse(parts: Parts) -> np.ndarray:
    return _masked(parts)


@codec("transform", "topk", MASK_AND_VALUES, INDICES)
def topk(parts: Parts, keep: float = 0.01) -> np.ndarray:
    return _masked(parts)


@codec("transform", "magnitude", MASK_AND_VALUES)
def magnitude(parts: Parts, sparsity: float = 0.5, count: int | None = None) -> np.ndarray:
    return _masked(parts)


@codec("transform", "threshold", MASK_AND_VALUES, INDICES)
def threshold(parts: Parts, value: float) -> np.ndarray:
    return _masked(parts)


def _slices(parts: Parts, axis: int, slices: int, kept: int = -1) -> np.ndarray:
    before, after = parts.shape[:axis], parts.shape[axis + 1 :]
    mask = parts.read("mask", (slices,), np.bool_)
    values = parts.read("values", (*before, kept, *after), parts.dtype)
    return _put(parts, mask.reshape(-1, *[1] * len(after)), values) if slices else values


@codec("transform", "live", MASK_AND_VALUES)
def live(parts: Parts, axis: int = 0) -> np.ndarray:
    return _slices(parts, axis, 0 if 0 in parts.shape else parts.shape[axis])


@codec("transform", "filter", {"mask": "bitpack", "values": "floats"})
def filter_rows(parts: Parts, sparsity: float = 0.5, keep: str = "") -> np.ndarray:
    return _slices(parts, 0, parts.shape[0])


@codec("transform", "channel", {"mask": "bitpack", "values": "floats"})
def channel(parts: Parts, sparsity: float = 0.5, keep: str = "") -> np.ndarray:
    channels = parts.shape[1]
    kept = bin(int(keep, 16)).count("1") if keep else channels - round(sparsity * channels)
    return _slices(parts, 1, channels, kept)


@codec("transform", "block", {"mask": "gaps", "origin": "raw", "values": "floats"})
def block(
    parts: Parts,
    height: int = 4,
    width: int = 4,
    sparsity: float = 0.5,
    keep: str = "",
    offset: int = 0,
) -> np.ndarray:
    rows, columns = parts.shape[0], math.prod(parts.shape[1:])
    mask = parts.read("mask", (-1, -(-columns // width)), np.bool_)
    origin = int(parts.read("origin", (), "<u4"))
    values = parts.read("values", (-1,), parts.dtype)
    if 0 in parts.shape:
        return values
    down, across = (np.arange(rows) + origin) // height, np.arange(columns) // width
    return _put(parts, mask[down][:, across].reshape(parts.shape), values)


def _runs(parts: Parts, keep: int, group: int) -> np.ndarray:
    rows, columns = matrix_shape(parts.shape)
    whole, rest = divmod(columns, group)
    runs = whole + (rest > 0)
    patterns = parts.read("mask", (rows, runs), "<u2" if group > 8 else "u1")
    values = parts.read("values", (rows, whole * keep + min(rest, keep)), parts.dtype)
    bits = patterns[:, :, None] >> np.arange(group) & 1
    mask = bits.reshape(rows, runs * group)[:, :columns] == 1
    return _put(parts, mask.reshape(parts.shape), values)


@codec("transform", "nm", {"mask": "ans", "values": "floats"})
def nm(parts: Parts, keep: int = 2, group: int = 4) -> np.ndarray:
    return _runs(parts, keep, group)


@codec("transform", "packed", {"mask": "ans", "values": "floats"})
def packed(parts: Parts, keep: int = 2, group: int = 4) -> np.ndarray:
    return _runs(parts, keep, group)


@codec("transform", "randomk", {"state": "raw", "values": "floats"})
def randomk(parts: Parts, keep: float = 0.01, seed: int = 0, offset: int = 0) -> np.ndarray:
    first, second, greatest = parts.read("state", (3,), "<u8").tolist()
    values = parts.read("values", (-1,), parts.dtype)
    begin = _mixed(first)
    mask = [
        values.size > 0 and _mixed(begin + (second + i + 1) * 0x9E3779B97F4A7C15) <= greatest
        for i in range(math.prod(parts.shape))
    ]
    return _put(parts, np.array(mask, np.bool_).reshape(parts.shape), values)


def _mixed(word: int) -> int:
    """Return the mix of SplitMix64 of a number modulo 2**64."""
    low = (1 << 64) - 1
    word &= low
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & low
    word = (word ^ word >> 27) * 0x94D049BB133111EB & low
    return word ^ word >> 31


@codec("transform", "zeros", {"signs": "bitpack", "values": "sparse"})
def zeros(parts: Parts) -> np.ndarray:
    signs = parts.read("signs", (-1,), np.bool_)
    words = parts.read("values", parts.shape, parts.dtype).view(word_of(parts.dtype)).copy()
    top = words.dtype.type(8 * words.itemsize - 1)
    zero = words << words.dtype.type(1) == 0
    words[zero] = signs.astype(words.dtype) << top
    return words


@codec("transform", "outliers", {"positions": "gaps", "exact": "floats", "values": "floats"})
def outliers(parts: Parts, limit: float) -> np.ndarray:
    positions = parts.read("positions", (-1,), "<i8")
    exact = parts.read("exact", (-1,), parts.dtype)
    values = parts.read("values", parts.shape, parts.dtype).copy()
    values.reshape(-1)[positions] = exact
    return values
