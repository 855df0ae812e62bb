"""Measure distortion: error sums that add up chunk by chunk."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tensorcomp.codecs.rounding import is_float
from tensorcomp.kernels import native

_PIECE = 1 << 16  # elements widened at a time: they stay in the second-level cache
_EXACT = 1 << 53  # up to here every integer is a float64
_TINY, _HUGE = 1e-280, 1e280  # sums of squares beyond may lack some that are 0 or infinite


@dataclass(slots=True)  # making a frozen one takes six times as long
class ErrorSums:
    """Sums for the error figures of x, the original, and y, its approximation.

    It is not changed once it is made.

    Those of chunks add up to those of the tensor: ``sum(parts, ErrorSums())``.

    Parameters
    ----------
    count : int
        Pairs that are finite; only these are in the sums.
    equal_nonfinite : int
        Pairs of two NaN, or of infinities of one sign: they count as equal.
    unequal_nonfinite : int
        Other pairs that are not both finite; with any, every error is infinite.
    abs_error, squared_error, max_error : float
        Σ|x-y|, Σ(x-y)² and max |x-y|.
    x_squared, y_squared, product, x_max : float
        Σx², Σy², Σxy and max |x|.
    worst_row : float
        The largest rel-L2 of a row that is not all zeros; 0 where rows were not measured.
    output_squared, output_energy : float
        Of the error and of x, as in `metrics.output_error`; 0 where outputs were not measured.
    loss : float
        That the error is predicted to add, in nats a term of the loss; 0 where not known.
    """

    count: int = 0
    equal_nonfinite: int = 0
    unequal_nonfinite: int = 0
    abs_error: float = 0
    squared_error: float = 0
    x_squared: float = 0
    y_squared: float = 0
    product: float = 0
    max_error: float = 0
    x_max: float = 0
    worst_row: float = 0
    output_squared: float = 0
    output_energy: float = 0
    loss: float = 0

    def __add__(self, other: ErrorSums) -> ErrorSums:
        """Return the sums of both, of chunks of one tensor say."""
        if not isinstance(other, ErrorSums):
            return NotImplemented
        return ErrorSums(
            self.count + other.count,
            self.equal_nonfinite + other.equal_nonfinite,
            self.unequal_nonfinite + other.unequal_nonfinite,
            self.abs_error + other.abs_error,
            self.squared_error + other.squared_error,
            self.x_squared + other.x_squared,
            self.y_squared + other.y_squared,
            self.product + other.product,
            max(self.max_error, other.max_error),
            max(self.x_max, other.x_max),
            max(self.worst_row, other.worst_row),
            self.output_squared + other.output_squared,
            self.output_energy + other.output_energy,
            self.loss + other.loss,
        )

    def with_output(self, squared: float, energy: float) -> ErrorSums:
        """Return the sums with those of outputs."""
        return replace(self, output_squared=squared, output_energy=energy)

    @property
    def output_error(self) -> float:
        """Relative error of the output; 0 if exact or not measured."""
        if not self.output_squared:
            return 0.0
        if not 0 < self.output_energy < math.inf:
            return math.inf
        return math.sqrt(self.output_squared / self.output_energy)

    @property
    def exact(self) -> bool:
        """Whether all values are equal; -0.0 equals 0.0, a NaN any other."""
        return not self.max_error and not self.unequal_nonfinite

    @property
    def l1(self) -> float:
        """The L1 norm of the error, Σ|x-y|."""
        return math.inf if self.unequal_nonfinite else self.abs_error

    @property
    def l2(self) -> float:
        """L2 norm of the error; an upper bound where squares exceed float64."""
        if self.unequal_nonfinite:
            return math.inf
        if _TINY < self.squared_error < _HUGE:
            return math.sqrt(self.squared_error)
        return self.max_error * math.sqrt(self.count)

    @property
    def max_abs(self) -> float:
        """The largest error, max |x-y|."""
        return math.inf if self.unequal_nonfinite else self.max_error

    @property
    def norm(self) -> float:
        """The L2 norm of x; where squares leave the range of float64, a lower bound."""
        if _TINY < self.x_squared < _HUGE:
            return math.sqrt(self.x_squared)
        return self.x_max

    @property
    def rel_l2(self) -> float:
        """‖x-y‖₂ / ‖x‖₂, 0 if exact; infinite if x is all zeros and y is not.

        Where squares leave the range of float64 (values beyond 1e140, or all below 1e-140), it is
        an upper bound.
        """
        if self.exact:
            return 0.0
        return self.l2 / self.norm if self.norm else math.inf

    @property
    def snr_db(self) -> float | None:
        """Signal-to-noise ratio, -20 log₁₀(rel-L2), in dB; None if exact."""
        if self.exact:
            return None
        return -20 * math.log10(self.rel_l2) if self.rel_l2 < math.inf else -math.inf

    @property
    def cosine(self) -> float | None:
        """Cosine of x and y; None if either is all zeros or not finite."""
        norms = math.sqrt(self.x_squared) * math.sqrt(self.y_squared)
        if self.unequal_nonfinite or not 0 < norms < math.inf:
            return None
        return min(1.0, max(-1.0, self.product / norms))


def measure(x: np.ndarray, y: np.ndarray, columns: int = 0) -> ErrorSums:
    """Return the error sums of two arrays of equal size, element by element.

    Parameters
    ----------
    x, y : numpy.ndarray
        Original and approximation: floats of any type (bfloat16 and fp8 too), integers, booleans
        or complex numbers, which are pairs of floats. The two types may differ. Integers are
        compared exactly with integers, and as float64 with floats.
    columns : int, optional
        Elements of a row, to measure the worst row too; the arrays are of whole rows.

    Raises
    ------
    ValueError
        If the sizes differ, or a type does not hold numbers.

    Notes
    -----
    One pass; memory for 65,536 widened elements. Pieces, and so the rounding of the sums, depend
    on nothing but the arrays.
    """
    if x.size != y.size:
        raise ValueError(f"expected two arrays of one size, got {x.size} and {y.size} elements")
    flat_x, flat_y = _components(x), _components(y)
    if flat_x.size != flat_y.size:
        raise ValueError(f"{x.dtype} and {y.dtype}: only one of them is complex")
    piece = _comparison(flat_x.dtype, flat_y.dtype)
    rows = None
    if columns and x.size:
        columns *= flat_x.size // x.size
        rows = _Rows(columns, np.zeros((flat_x.size // columns, 2)))
    if 0 < flat_x.size <= _PIECE:
        total = piece(flat_x, flat_y, rows, 0)
    else:
        total = ErrorSums()
        for start in range(0, flat_x.size, _PIECE):
            stop = start + _PIECE
            total += piece(flat_x[start:stop], flat_y[start:stop], rows, start)
    if rows is not None:
        total.worst_row = rows.worst()
    return total


class _Rows(NamedTuple):
    """Σ(x-y)² and Σx² of each row of `columns` elements."""

    columns: int
    sums: np.ndarray

    def add(self, x: np.ndarray, y: np.ndarray, start: int) -> None:
        """Add elements, of which the first is number `start`."""
        native.errors_by_row(_aligned(x), _aligned(y), start, self.columns, self.sums)

    def worst(self) -> float:
        """Return the largest rel-L2; rows without a norm, or with one beyond float64, have none."""
        errors, squares = self.sums.T
        with np.errstate(over="ignore"):
            counts = (squares > _TINY) & (errors + squares < math.inf)
        shares = np.divide(errors, squares, out=np.zeros(errors.size), where=counts)
        return math.sqrt(shares.max(initial=0.0))


@functools.cache
def _comparison(
    x: np.dtype, y: np.dtype
) -> Callable[[np.ndarray, np.ndarray, _Rows | None, int], ErrorSums]:
    """Return what gives the sums of a piece of two arrays of these types."""
    if x == y and x.kind in "iu" and x.itemsize == 8:
        return _long_integers
    return functools.partial(_piece, np.result_type(_wide(x), _wide(y)))


def _components(array: np.ndarray) -> np.ndarray:
    """Return an array's numbers as a flat array of floats or integers."""
    if array.dtype.kind not in "biufc" and not is_float(array.dtype):
        raise ValueError(f"{array.dtype} holds no numbers")
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(f"<f{flat.itemsize // 2}") if flat.dtype.kind == "c" else flat


def _piece(
    wide: np.dtype, x: np.ndarray, y: np.ndarray, rows: _Rows | None, start: int
) -> ErrorSums:
    x, y = _widened(x, wide), _widened(y, wide)
    sums = _sums(x, y)
    if rows is not None:
        rows.add(x, y, start)
    return sums if math.isfinite(sums.abs_error) else _nonfinite(x, y)


def _wide(dtype: np.dtype) -> np.dtype:
    """Return the float type to compute with."""
    narrow = dtype.itemsize <= (4 if is_float(dtype) else 2)
    return np.dtype(np.float32 if narrow else np.float64)


def _widened(array: np.ndarray, wide: np.dtype) -> np.ndarray:
    if array.itemsize == 1 and is_float(array.dtype):
        return np.take(_values_of_bytes(array.dtype), array.view(np.uint8)).astype(wide, copy=False)
    return array.astype(wide, copy=False)


@functools.cache
def _values_of_bytes(dtype: np.dtype) -> np.ndarray:
    """Return the 256 values of a one-byte float type; ml_dtypes is slow."""
    return np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)


def _sums(x: np.ndarray, y: np.ndarray) -> ErrorSums:
    found = np.empty(7)
    native.errors_sum(_aligned(x), _aligned(y), found)
    return ErrorSums(x.size, 0, 0, *found.tolist())


def _aligned(array: np.ndarray) -> np.ndarray:
    return array if array.flags.aligned else array.copy()


def _nonfinite(x: np.ndarray, y: np.ndarray) -> ErrorSums:
    """Return the sums of a piece in which some elements are NaN or infinite."""
    finite = np.isfinite(x) & np.isfinite(y)
    same = ((x == y) | (np.isnan(x) & np.isnan(y))) & ~finite
    kept = _sums(x[finite], y[finite])
    equal = int(np.count_nonzero(same))
    return ErrorSums(0, equal, x.size - kept.count - equal) + kept


def _long_integers(
    x: np.ndarray, y: np.ndarray, rows: _Rows | None = None, start: int = 0
) -> ErrorSums:
    """Return the sums of 64-bit integers; their differences are exact."""
    as_floats = _sums(x.astype(np.float64), y.astype(np.float64))
    if as_floats.x_max + as_floats.max_error < _EXACT:
        return as_floats
    larger = x > y
    words_x, words_y = x.astype(np.uint64), y.astype(np.uint64)  # modulo 2**64
    difference = np.where(larger, words_x - words_y, words_y - words_x).astype(np.float64)
    exact = _sums(difference, np.zeros_like(difference))
    return replace(
        as_floats,
        abs_error=exact.abs_error,
        squared_error=exact.squared_error,
        max_error=exact.max_error,
    )
