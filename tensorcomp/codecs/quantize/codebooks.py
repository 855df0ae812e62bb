"""Learn codebooks, share them between chunks, and look codes up in them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tensorcomp.codecs.base import ArraySpec, Transform
from tensorcomp.codecs.bit_views import as_words
from tensorcomp.codecs.rounding import check_float, store, widened, work_dtype
from tensorcomp.errors import CodecError
from tensorcomp.kernels import native

if TYPE_CHECKING:
    from tensorcomp.codecs.feedback import Matrix, Rounding

MAX_CODES = 1 << 16
_FEW = 1 << 14  # elements below which a search for each is faster than a table of bins
_BIN_BITS = 16
# Bits of a bin of the histogram, for codebooks up to a size: a bin must be narrow within a cell.
_HISTOGRAMS = ((32, 16), (1024, 19))
_EXACT = 64  # size of a codebook up to which the best cut of the points is found
_CUT_POINTS = 1024
_SMALL = 2.0**-64
_MAX_PASSES = 50
_ROUNDS_OF_CAPPING = 64
_THIRD = np.uint64(0x2A9F7893E3D6A000)  # two thirds of the bits of 1.0, and a little less


def code_dtype(k: int) -> np.dtype:
    """Return the dtype of codes below k."""
    return np.dtype(np.uint8) if k <= 1 << 8 else np.dtype("<u2")


def learn_codebook(values: np.ndarray, k: int) -> np.ndarray:
    """Return at most k ascending numbers of the least squared error.

    They have the values' dtype.

    Where there are at most k distinct values, these. Everything is IEEE arithmetic in a fixed
    order.

    Parameters
    ----------
    values : numpy.ndarray
        float32 or float64, finite, C-contiguous.
    k : int
    """
    if values.size == 0:
        return np.empty(0, values.dtype)
    words = as_words(values).reshape(-1)
    found = np.empty(k, words.dtype)
    distinct = native.palette_number(words, found, np.empty(words.size, np.uint16))
    if distinct >= 0:
        centers = found[:distinct].view(values.dtype)
    else:
        exponent = _exponent(values)
        points, counts = _distribution(values, k, exponent)
        centers = points if points.size <= k else _best_centers(points, counts, k)
        centers = times_power(centers, exponent).astype(values.dtype)
    codebook: np.ndarray = np.unique(centers)
    codebook += values.dtype.type(0)  # so that there is no -0.0
    return codebook


def times_power(values: np.ndarray, exponent: int) -> np.ndarray:
    """Return values × 2**exponent, clipped to the largest finite numbers.

    Means may round up to infinity.
    """
    most = np.finfo(values.dtype).max
    with np.errstate(over="ignore"):
        within: np.ndarray = np.clip(np.ldexp(values, exponent), -most, most)
    return within


def _best_centers(points: np.ndarray, counts: np.ndarray, k: int) -> np.ndarray:
    """Return k ascending centers of points of which there are more, each with a count."""
    centers = _placed(points, counts, k)
    if k > _EXACT:
        _improve(points, counts, centers)
        return centers
    fine = _placed(points, counts, min(_CUT_POINTS, points.size))
    masses, _ = _improve(points, counts, fine, 1)
    means, masses = fine[masses > 0], masses[masses > 0]
    if means.size <= k:
        _improve(points, counts, centers)
        return centers
    best = np.empty(k)
    native.codebook_cut(means, masses, best)
    _, error = _improve(points, counts, best)
    # Sums over all points lose the small ones where there are huge ones; the error shows it.
    return centers if _improve(points, counts, centers)[1] < error else best


def _improve(
    points: np.ndarray, counts: np.ndarray, centers: np.ndarray, passes: int = _MAX_PASSES
) -> tuple[np.ndarray, float]:
    """Move centers by Lloyd's iteration; return what each stands for, and the squared error."""
    masses, error = np.empty(centers.size), np.empty(1)
    native.codebook_lloyd(points, counts, passes, centers, masses, error)
    return masses, float(error[0])


def _placed(points: np.ndarray, counts: np.ndarray, k: int) -> np.ndarray:
    """Return where a good quantizer of points, more than one, ascending, has its k centers.

    At a fine resolution the density of centers is that of the points to the power of 1/3. Sums are
    in the order of the points.
    """
    gaps = points[1:] - points[:-1]
    measure = _cube_root(0.5 * (counts[:-1] + counts[1:]) * gaps * gaps)
    sums = np.cumsum(measure)
    for _ in range(_ROUNDS_OF_CAPPING):  # nothing lies within a gap: one center is enough for it
        total = sums[-1]
        np.minimum(measure, total / k, out=measure)
        np.cumsum(measure, out=sums)
        if sums[-1] > 0.9 * total:
            break
    places = np.arange(k)
    gap = np.minimum(np.searchsorted(sums, sums[-1] * (places + 0.5) / k), gaps.size - 1)
    outer: np.ndarray = points[gap + (places >= k // 2)]  # so that what lies alone gets its own
    return outer


def _cube_root(x: np.ndarray) -> np.ndarray:
    """Return the cube roots of doubles, 0 or normal and positive, by Newton's iteration."""
    root = (x.view(np.uint64) // np.uint64(3) + _THIRD).view(np.float64)
    for _ in range(4):
        root -= (root - x / (root * root)) / 3.0
    return np.where(x == 0, 0.0, root)


def _exponent(values: np.ndarray) -> int:
    """Return the power of two by which values are divided, so that normal singles hold them."""
    most = max(values.max(), -values.min())
    return 0 if values.dtype == np.float32 and most > _SMALL else int(np.frexp(most)[1])


def _distribution(values: np.ndarray, k: int, exponent: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ascending points, float64, and how many values each stands for, int64."""
    flat = values.reshape(-1)
    if exponent:
        flat = np.ldexp(flat, -exponent)
    bits = next((bits for most, bits in _HISTOGRAMS if k <= most), 32)
    if flat.size < 1 << (bits - 4):
        points, counts = np.unique(flat, return_counts=True)
        return points.astype(np.float64), counts.astype(np.int64)
    counts, sums = np.zeros((2, 1 << bits), np.int64)
    native.codebook_histogram(flat.astype(np.float32).view("<u4"), 32 - bits, counts, sums)
    used = np.flatnonzero(counts)
    keys = used.astype(np.uint64) << np.uint64(32 - bits)
    first, next_one = _value_of(keys), _value_of(keys + np.uint64(1))
    counts = counts[used]
    return first + (next_one - first) * (sums[used] / counts), counts


def _value_of(keys: np.ndarray) -> np.ndarray:
    """Return the singles of these keys (see `_keys`), as doubles."""
    positive = keys >> np.uint64(31) != 0
    words = np.where(positive, keys ^ np.uint64(1 << 31), ~keys & np.uint64(0xFFFFFFFF))
    return words.astype("<u4").view(np.float32).astype(np.float64)


def _keys(values: np.ndarray) -> np.ndarray:
    """Return unsigned integers, of the floats' bits, that are ordered as the floats are."""
    words = as_words(values)
    top = np.iinfo(words.dtype).max ^ (np.iinfo(words.dtype).max >> 1)
    return np.where(words & top != 0, ~words, words | top).astype(np.uint64)


def nearest(values: np.ndarray, codebook: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the code of the nearest number of an ascending codebook.

    Of two equally near the lower one.

    Parameters
    ----------
    values, codebook : numpy.ndarray
        Of one dtype, float32 or float64.
    dtype : numpy.dtype
        Of the codes.
    """
    thresholds = 0.5 * codebook[:-1] + 0.5 * codebook[1:]
    thresholds = np.where(thresholds < codebook[1:], thresholds, codebook[:-1])  # neighbours
    thresholds += values.dtype.type(0)  # so that there is no -0.0
    if values.size < _FEW:
        found: np.ndarray = np.searchsorted(thresholds, values)
        return found.astype(dtype)
    words = as_words(values).reshape(-1)
    keys = np.append(_keys(thresholds), np.iinfo(np.uint64).max)
    shift = 8 * words.itemsize - _BIN_BITS
    bins = np.bincount((keys[:-1] >> np.uint64(shift)).astype(np.int64), minlength=1 << _BIN_BITS)
    starts = np.zeros(bins.size + 1, np.int32)
    np.cumsum(bins, out=starts[1:])
    codes = np.empty(values.shape, dtype)
    probes = int(bins.max()).bit_length()
    native.codebook_assign(words, shift, starts, keys, probes, codes.reshape(-1))
    return codes


class CodebookQuantizer(Transform):
    """Base class of quantizers to a codebook that the chunks share.

    It has `k` numbers or vectors.

    Attributes
    ----------
    width : int
        Elements that a code stands for.
    """

    lossless: ClassVar[bool] = False
    default_parts: ClassVar[Mapping[str, str]] = {"codebook": "raw", "codes": "ans"}
    k: int
    width: int = 1

    def codes_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the codes of an array."""
        return shape

    @abstractmethod
    def learn(self, values: np.ndarray) -> np.ndarray:
        """Return the codebook, flat."""

    @abstractmethod
    def nearest(self, values: np.ndarray, codebook: np.ndarray) -> np.ndarray:
        """Return the codes of values."""

    def shares(self, spec: ArraySpec) -> bool:
        """Return true: chunks share a codebook."""
        return True

    def fit(self, array: np.ndarray) -> bytes:
        """Return the codebook."""
        return self.learn(widened(array, self.id)).tobytes()

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the specs of the codebook and of the codes.

        The codebook is as long as the data need.
        """
        return {
            "codebook": ArraySpec((-1,), work_dtype(spec.dtype)),
            "codes": ArraySpec(self.codes_shape(spec.shape), code_dtype(self.k)),
        }

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return codebook and codes."""
        values = widened(array, self.id)
        own = np.empty(0, values.dtype) if shared else self.learn(values)
        codebook = self._unpack(shared, array.dtype) if shared else own
        codes = self.nearest(values, codebook)
        return {"codebook": own, "codes": codes.reshape(self.codes_shape(array.shape))}

    def rounding(self, matrix: Matrix) -> Rounding | None:
        """Return the rounding to the nearest number; None for vectors of several."""
        if self.width != 1:
            return None
        dtype = matrix.columns.dtype
        learned = np.ascontiguousarray(matrix.columns)
        known = self._unpack(matrix.shared, dtype) if matrix.shared else self.learn(learned)
        codebook = known.astype(dtype)

        def round_column(_i: int, targets: np.ndarray, _ahead: np.ndarray | None) -> np.ndarray:
            result: np.ndarray = codebook[self.nearest(targets, codebook)]
            return result

        return round_column

    def _unpack(self, shared: bytes, dtype: np.dtype) -> np.ndarray:
        """Return the codebook that chunks share: its numbers, little-endian."""
        wide = work_dtype(dtype)
        if len(shared) % wide.itemsize:
            raise CodecError(f"{self.id}: expected a codebook of {wide}, got {len(shared)} bytes")
        return np.frombuffer(shared, wide)

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Look each code up."""
        codes = parts["codes"].reshape(-1)
        codebook = self._unpack(shared, out.dtype) if shared else parts["codebook"]
        check_float(out.dtype, self.id)
        if codebook.size % self.width or codebook.size > self.k * self.width:
            raise CodecError(f"{self.id}: expected a table of {self.k}, got {codebook.size}")
        if codes.size * self.width != out.size:
            raise CodecError(f"{self.id}: {self.width} does not divide the rows of {out.shape}")
        check_codes(codes, codebook.size // self.width, self.id)
        if not np.isfinite(codebook).all():
            raise CodecError(f"{self.id}: its codebook holds NaN or infinity")
        if codes.size == 0:
            return
        table = np.empty(codebook.size, out.dtype)
        store(codebook, table)
        self.look_up(codes, as_words(table), as_words(out).reshape(-1))

    def look_up(self, codes: np.ndarray, table: np.ndarray, out: np.ndarray) -> None:
        """Set words to those of a table that codes stand for."""
        native.codebook_look_up(codes, 0, table, out)


def check_codes(codes: np.ndarray, size: int, codec: str) -> None:
    """Require codes below the size of their codebook."""
    if codes.size and int(codes.max()) >= size:
        raise CodecError(f"{codec}: expected codes below {size}, got {codes.max()}")
