"""The transforms whose codes are places in a table.

*palette*: parts ``table``, of the array's dtype, and ``codes``, uint16, of the array's shape. An
element has the bits of the table's entry at its code.

*kmeans*: parts ``codebook``, float32 (float64 for float64 arrays), empty if chunks share it, and
``codes``, of the array's shape, uint8 for k up to 256, else uint16. An element is the number at its
code, rounded (see `codec.rounded`). What chunks share: the codebook's numbers.

*pq*: as kmeans, but codes stand for vectors of `width` numbers, one behind the other in the
codebook, and ``codes`` has the shape (rows, columns / width) of the matrix.

*nf4*: parts ``scales``, one a group (see `groups`), float32 (float64 for float64 arrays), and
``codes``, uint8, of the array's shape. An element is the level at its code × its group's scale.
"""

import numpy as np

from reference.codec import Parts, codec, matrix_shape, rounded, word_of, work_dtype
from reference.groups import read_scales, scaled

# Quantiles of the normal distribution (Dettmers et al. 2023, appendix E), float32 numbers.
NF4_LEVELS = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)


@codec("transform", "palette", {"table": "raw", "codes": "ans"})
def palette(parts: Parts) -> np.ndarray:
    table = parts.read("table", (-1,), parts.dtype).view(word_of(parts.dtype))
    return table[parts.read("codes", parts.shape, "<u2")]


@codec("transform", "kmeans", {"codebook": "raw", "codes": "ans"})
def kmeans(parts: Parts, k: int = 16) -> np.ndarray:
    codebook = _codebook(parts)
    return codebook[parts.read("codes", parts.shape, _code_dtype(k))]


@codec("transform", "pq", {"codebook": "raw", "codes": "ans"})
def pq(parts: Parts, k: int = 256, width: int = 4) -> np.ndarray:
    rows, columns = matrix_shape(parts.shape)
    vectors = _codebook(parts).reshape(-1, width)
    return vectors[parts.read("codes", (rows, columns // width), _code_dtype(k))]


def _codebook(parts: Parts) -> np.ndarray:
    wide = work_dtype(parts.dtype)
    own = parts.read("codebook", (-1,), wide)
    return rounded(np.frombuffer(parts.shared, wide) if parts.shared else own, parts.dtype)


def _code_dtype(k: int) -> str:
    return "u1" if k <= 256 else "<u2"


@codec("transform", "nf4", {"scales": "fields", "codes": "bitpack"})
def nf4(parts: Parts, group: int = 64) -> np.ndarray:
    scales = read_scales(parts, "scales", group)
    levels = np.array(NF4_LEVELS)[parts.read("codes", parts.shape, np.uint8)]
    return scaled(parts, levels, scales, group)
