"""The transforms that multiply matrices; sums are added in the order of their terms, from 0.

*svd*: parts ``left`` (m, r) and ``right`` (r, n), float32 (float64 for float64 arrays), and with
`refine` ``residual``, of the same dtype and the array's shape. An array is the matrix first axis ×
all others; with ``unfold="separable"`` one of four axes (O, I, h, w) is the matrix (O h) × (I w).
r is open, unless there is a field `rank`: that, or that part of the shorter side, rounded and at
least 1; at most the shorter side. The array is the product, of the factors' dtype, plus the
residual, rounded (see `codec.rounded`).

*rotate*: parts ``rotated``, of the array's shape, float32 (float64 for float64 arrays), and
``reflectors``, int8, rows of as many numbers as the matrix has columns, empty if chunks share them.
What chunks share: a block of one section (see `bits`), the reflectors. A row v stands for the
reflection I - 2 v vᵀ / vᵀv, a row of zeros for none. Of r reflections the product is I - V T Vᵀ,
where the columns of V are the v over their lengths and T is upper triangular (Schreiber & Van Loan
1989):

- T[j, j] = 2, and for i < j, T[i, j] = -2 Σ T[i, k] (v_k · v_j) / (|v_k| |v_j|), k from i to j - 1;
  rows and columns of zero vectors are 0;
- V has the elements v × (1 / |v|); V, T and W = Tᵀ Vᵀ are float64, then V and W are rounded to the
  dtype of ``rotated``.

The array is X - (X V) W in that dtype, for the rotated rows X, rounded (see `codec.rounded`).

*scales*: parts ``rows`` and ``columns``, int8, a number for each of the matrix first axis × all
others, and ``values``, float32 (float64 for float64 arrays), (columns, rows), or (rows, columns)
with `axis` 0. A number e stands for the factor 2^(-e / 4), rounded to the type of ``values``. The
array is value × factor of its row × factor of its column, each product rounded to that type, kept
within the largest numbers of the array's dtype, and rounded.

*update*: part ``values``, of the array's shape, float32 (float64 for float64 arrays). The array is
reference + `gain` × value, each rounded to that dtype, rounded (see `codec.rounded`).

*rank1*: parts ``scale``, float64, one number, none for an array without elements; ``rows`` and
``columns``, int8, a number e for each of the matrix first axis × all others: it stands for 2^(e /
2), and -128 for 0. The array is (factor of its row × scale) × factor of its column in float64,
where neither factor is 0 at least the least number of the dtype above 0, rounded.
"""

import ml_dtypes
import numpy as np

from reference.bits import unpack_sections
from reference.codec import Parts, codec, largest, matrix_shape, rounded, work_dtype


@codec("transform", "svd", {"left": "floats", "right": "floats", "residual": "floats"})
def svd(
    parts: Parts,
    rank: float | None = None,
    energy: float | None = None,
    error: float | None = None,
    unfold: str = "rows",
    refine: bool = False,
) -> np.ndarray:
    separable = unfold == "separable" and len(parts.shape) == 4 and 0 not in parts.shape
    rows, columns = matrix_shape(parts.shape)
    if separable:
        outer, inner, height, width = parts.shape
        rows, columns = outer * height, inner * width
    components = -1
    if rank is not None:
        shorter = min(rows, columns)
        wanted = rank if isinstance(rank, int) else max(round(rank * shorter), 1)
        components = min(wanted, shorter)
    left = parts.read("left", (rows, components), work_dtype(parts.dtype))
    right = parts.read("right", (components, columns), work_dtype(parts.dtype))
    values = multiply(left, right)
    if separable:
        values = values.reshape(outer, height, inner, width).transpose(0, 2, 1, 3)
    if refine:
        residual = parts.read("residual", parts.shape, values.dtype)
        values = values.reshape(parts.shape) + residual
    return rounded(values, parts.dtype)


@codec("transform", "rotate", {"rotated": "floats", "reflectors": "ans"})
def rotate(parts: Parts, rank: int = 64) -> np.ndarray:
    rotated = parts.read("rotated", parts.shape, work_dtype(parts.dtype))
    reflectors = parts.read("reflectors", (-1,), np.int8)
    if parts.shared:
        reflectors = np.frombuffer(unpack_sections(parts.shared)[0], np.int8)
    if rotated.size == 0 or reflectors.size == 0:
        return rounded(rotated, parts.dtype)
    rows = rotated.reshape(matrix_shape(parts.shape))
    vectors = reflectors.reshape(-1, rows.shape[1]).astype(np.int64)
    lengths = np.sqrt(np.square(vectors).sum(axis=1).astype(np.float64))
    inverses = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    units = vectors * inverses[:, None]
    right = multiply(_triangle(vectors, lengths).T, units).astype(rows.dtype)
    along = multiply(rows, units.T.astype(rows.dtype))
    return rounded(rows - multiply(along, right), parts.dtype)


def _triangle(vectors: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    triangle = np.zeros((len(vectors), len(vectors)))
    for j in np.flatnonzero(lengths):
        triangle[j, j] = 2.0
        cosines = np.zeros(j)
        for k in range(j):
            if lengths[k] > 0:
                cosines[k] = float(vectors[j] @ vectors[k]) / (lengths[k] * lengths[j])
        for i in range(j):
            total = 0.0
            for k in range(i, j):
                total += triangle[i, k] * cosines[k]
            triangle[i, j] = -2.0 * total
    return triangle


def multiply(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return a product in the factors' dtype, each sum from the first term to the last."""
    out = np.zeros((left.shape[0], right.shape[1]), left.dtype)
    for k in range(left.shape[1]):
        out = out + left[:, k, None] * right[k]
    return out


@codec(
    "transform",
    "scales",
    {
        "rows": "raw(bytes=zstd(level=19))",
        "columns": "raw(bytes=zstd(level=19))",
        "values": "floats",
    },
)
def scales(parts: Parts, axis: int = 1) -> np.ndarray:
    shape, dtype = matrix_shape(parts.shape), work_dtype(parts.dtype)
    rows, columns = (
        np.exp2(parts.read(name, (size,), np.int8) / -4).astype(dtype)
        for name, size in zip(("rows", "columns"), shape, strict=True)
    )
    values = parts.read("values", shape[::-1] if axis else shape, dtype)
    limit = largest(parts.dtype)
    with np.errstate(all="ignore"):
        products = (values.T if axis else values) * rows[:, None] * columns
        return rounded(np.clip(products, -limit, limit), parts.dtype)


@codec("transform", "update", {"values": "floats"})
def update(parts: Parts, gain: float = 1.0) -> np.ndarray:
    values = parts.read("values", parts.shape, work_dtype(parts.dtype))
    assert parts.reference is not None
    with np.errstate(all="ignore"):
        scaled = values * values.dtype.type(gain)
        return rounded(parts.reference.astype(values.dtype) + scaled, parts.dtype)


@codec(
    "transform",
    "rank1",
    {
        "scale": "raw",
        "rows": "raw(bytes=zstd(level=19))",
        "columns": "raw(bytes=zstd(level=19))",
    },
)
def rank1(parts: Parts) -> np.ndarray:
    shape = matrix_shape(parts.shape)
    scale = parts.read("scale", (min(shape[0], 1),), np.float64)
    exponents = [
        parts.read(name, (size,), np.int8)
        for name, size in zip(("rows", "columns"), shape, strict=True)
    ]
    rows, columns = (np.where(e == -128, 0, np.exp2(e / 2)) for e in exponents)
    least = float(ml_dtypes.finfo(parts.dtype).smallest_subnormal)
    with np.errstate(all="ignore"):
        found = np.outer(rows * scale, columns)
        known = (rows[:, None] > 0) & (columns > 0)
        return rounded(np.where(known, np.maximum(found, least), 0), parts.dtype)
