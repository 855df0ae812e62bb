"""Rotation of rows that makes columns of their strongest directions."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import ArraySpec, Transform, spec_of
from tensorcomp.codecs.bit_views import as_rows
from tensorcomp.codecs.entropy.side_info import pack_side_info, unpack_side_info
from tensorcomp.codecs.lowrank.blas import one_thread
from tensorcomp.codecs.lowrank.factors import nearest_factors
from tensorcomp.codecs.lowrank.svd import product
from tensorcomp.codecs.rounding import check_float, store, widened, work_dtype
from tensorcomp.errors import CodecError, NotRepresentable

_MIN_COLUMNS = 8
_MAX_REFLECTOR = 127
_MAX_GRAM = 1024  # columns; of more, the strongest directions alone are found faster
_MAX_BITS = 0.3  # a weight, for the directions that a rotation aligns
_ROWS_A_COLUMN = 2
_MAX_SAMPLE = 1 << 20  # elements
_LEARNED = 1 << 20  # elements that directions are learned from, about


@dataclass(frozen=True)
class Rotate(Transform):
    """Rotate the rows of a matrix so that strong directions become columns.

    Rows of an embedding share directions in which they are far longer than in others. Once these
    are columns, a coder in contexts (`ans`) gives each as many bits as its scale needs; equal steps
    for all columns stay the best choice. The rotation is a product of Householder reflections, each
    of which takes one singular vector of the rows, scaled to equal length, to a coordinate axis.

    Parts: ``rotated``, of the array's shape, float32 (float64 for float64): the rows times H₁ H₂ …
    ``reflectors``, int8, one-dimensional: the vectors v, one behind the other, of the reflections
    H = I − 2 v vᵀ / vᵀv; empty if the tensor's chunks share them. Rows are decoded by the product
    of the reflections the other way round, in the dtype of ``rotated``, its sums in a fixed order,
    and rounded to the array's dtype.

    Error: the squares of a row's errors have the same sum before and after the rotation, whatever
    subtree loses them, but for rounding, in single precision about 1e-6 of the row's norm. The
    error of a single element is not bounded by that of another.

    Parameters
    ----------
    rank : int
        Reflections, from 1 to 1024; at most as many as rows, or columns less one.

    Notes
    -----
    Cost: O(m n r), 0.15 ns for an element and a reflection each way; learning the directions of a
    tensor takes the singular vectors of a part of its rows. The reflectors are learned by LAPACK,
    whose builds may round them differently, so that equal inputs may give other bytes elsewhere;
    decoding is exact to the bit everywhere. For embeddings of many more rows than columns: 0.1 to
    0.2 bit a weight at equal error. Not for matrices as wide as high, whose reflectors cost as much
    as they save, nor with a bound on single elements.

    References
    ----------
    Goyal 2001, "Theoretical foundations of transform coding"; Schreiber & Van Loan 1989, "A
    storage-efficient WY representation for products of Householder transformations".
    """

    id: ClassVar[str] = "rotate"
    lossless: ClassVar[bool] = False
    off_wire: ClassVar[str] = "it decomposes each tensor to learn its rotation"
    default_parts: ClassVar[Mapping[str, str]] = {"rotated": "floats", "reflectors": "ans"}
    rank: int = argument(64, least=1, most=1024)

    def is_promising(self, sample: np.ndarray, rows: int) -> bool:
        """Return whether there are enough rows to pay for the directions."""
        return 8 * self.rank <= _MAX_BITS * rows

    def sample_size(self, columns: int) -> int:
        """Return the size of two rows per column.

        From fewer more is learned than holds for the other rows.
        """
        return min(_ROWS_A_COLUMN * columns * columns, _MAX_SAMPLE)

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the specs of the rotated rows and of the reflectors.

        The data decide how many reflectors there are.
        """
        return {
            "rotated": ArraySpec(spec.shape, work_dtype(spec.dtype)),
            "reflectors": ArraySpec((-1,), np.dtype(np.int8)),
        }

    def shares(self, spec: ArraySpec) -> bool:
        """Return whether the array is a matrix of some size."""
        return len(spec.shape) > 1 and spec.size > 0 and spec.size // spec.shape[0] >= _MIN_COLUMNS

    def fit(self, array: np.ndarray) -> bytes:
        """Learn the reflectors."""
        if not self.shares(spec_of(array)):
            return b""
        return pack_side_info([self._learn(array).tobytes()])

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return the rotated rows, and the reflectors if they are not shared."""
        wide = widened(array, "rotate")
        if array.size and not self.shares(spec_of(array)):
            raise NotRepresentable(
                f"rotate: expected {_MIN_COLUMNS} columns or more, got {array.shape}"
            )
        if array.size == 0:
            return {"rotated": wide.copy(), "reflectors": np.empty(0, np.int8)}
        rows = as_rows(wide)
        own = np.empty(0, np.int8) if shared else self._learn(array).reshape(-1)
        rotated = _turn(rows, _as_reflectors(own, shared, rows.shape[1]), back=False)
        if not np.isfinite(rotated).all():
            raise NotRepresentable("rotate: the rows are too long to be turned")
        return {"rotated": rotated.reshape(array.shape), "reflectors": own}

    def _learn(self, array: np.ndarray) -> np.ndarray:
        """Return the reflectors (r, n) that take the strongest directions to axes."""
        rows = as_rows(widened(array, "rotate"))
        rank = min(self.rank, rows.shape[0], rows.shape[1] - 1)
        part = rows[:: max(rows.size // _LEARNED, 1)]
        peaks = np.abs(part).max(axis=1, keepdims=True)
        part = np.divide(part, peaks, out=np.zeros_like(part), where=peaks > 0)
        lengths = np.sqrt(np.einsum("ij,ij->i", part, part))[:, None]
        part = np.divide(part, lengths, out=part, where=lengths > 0)
        return _learned(part.astype(np.float32).tobytes(), part.shape[1], rank)

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Turn the rows back."""
        check_float(out.dtype, "rotate")
        if out.size == 0:
            return
        rotated = as_rows(parts["rotated"])
        reflectors = _as_reflectors(parts["reflectors"], shared, rotated.shape[1])
        store(_turn(rotated, reflectors, back=True).reshape(out.shape), out)


@functools.lru_cache(maxsize=4)
def _learned(rows: bytes, columns: int, rank: int) -> np.ndarray:
    """Return the reflectors for float32 rows; cached, since planning asks at many steps."""
    part = np.frombuffer(rows, np.float32).reshape(-1, columns)
    reflectors = _reflectors(_directions(part, rank))
    reflectors.flags.writeable = False
    return reflectors


def _directions(rows: np.ndarray, rank: int) -> np.ndarray:
    """Return the strongest directions of rows (m, n), orthonormal, (rank, n) float64."""
    if rows.shape[1] > _MAX_GRAM:
        directions = nearest_factors(rows, rank, 0.0)[1]
        lengths = np.sqrt(np.square(directions).sum(axis=1, keepdims=True))
        np.divide(directions, lengths, out=directions, where=lengths > 0)
        return directions
    with one_thread():
        vectors: np.ndarray = np.linalg.eigh((rows.T @ rows).astype(np.float64))[1]
    return vectors[:, ::-1][:, :rank].T


def _as_reflectors(own: np.ndarray, shared: bytes, columns: int) -> np.ndarray:
    """Return the shared reflectors (r, columns), the chunk's own if nothing is shared."""
    if shared:
        own = np.frombuffer(unpack_side_info(shared, 1, columns * columns)[0], np.int8)
    if own.size % columns or own.size > columns * columns:
        what = "shared elements" if shared else "elements"
        raise CodecError(f"rotate: {own.size} {what} of reflectors of {columns}")
    return own.reshape(-1, columns)


def _reflectors(directions: np.ndarray) -> np.ndarray:
    """Return integer vectors whose reflections, one after the other, take directions to axes.

    Each direction goes to the axis, not yet taken, that it is nearest to.
    """
    left = directions.T.copy()  # what the reflections so far made of the directions
    count, size = directions.shape
    reflectors = np.zeros((count, size), np.int8)
    free = np.ones(size, np.bool_)
    for j in range(count):
        vector = np.where(free, left[:, j], 0)
        length = np.sqrt(np.square(vector).sum())
        axis = int(np.argmax(np.abs(vector)))
        if not length > 0:
            continue
        vector /= length
        vector[axis] += np.copysign(1.0, vector[axis])
        free[axis] = False
        reflectors[j] = np.rint(vector * (_MAX_REFLECTOR / np.abs(vector).max()))
        unit = reflectors[j] / np.sqrt(np.square(reflectors[j].astype(np.float64)).sum())
        left -= 2 * np.outer(unit, unit @ left)
    return reflectors


def _turn(rows: np.ndarray, reflectors: np.ndarray, *, back: bool) -> np.ndarray:
    """Return the rows times the product of the reflections, or of its transpose."""
    if reflectors.size == 0:
        return rows
    inner, units = compact(reflectors)
    right = product(inner.T if back else inner, units)
    along = product(rows, units.T.astype(rows.dtype))
    turned = product(along, right.astype(rows.dtype))
    with np.errstate(all="ignore"):
        np.subtract(rows, turned, out=turned)
    return turned


def compact(reflectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return T (r, r) and V (r, n) with I − Vᵀ T V the product of reflections.

    T is upper triangular. Sums are exact, or have a fixed order.

    Parameters
    ----------
    reflectors : numpy.ndarray
        (r, n) int8. A vector of zeros stands for no reflection: its row and column are zeros.

    References
    ----------
    Schreiber & Van Loan 1989, "A Storage-Efficient WY Representation for Products of Householder
    Transformations".
    """
    wide = reflectors.astype(np.float64)
    with one_thread():
        gram = wide @ wide.T  # of integers: exact, whatever the order
    lengths = np.sqrt(gram.diagonal())
    products = lengths * lengths[:, None]
    cosines = np.divide(gram, products, out=np.zeros_like(gram), where=products > 0)
    inner = np.zeros_like(gram)
    for j in np.flatnonzero(lengths):
        terms = inner[:j, :j] * cosines[j, :j]
        if j:
            inner[:j, j] = -2 * np.cumsum(terms, axis=1)[:, -1]  # from the first to the last
        inner[j, j] = 2
    inverses = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return inner, wide * inverses[:, None]
