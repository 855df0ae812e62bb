"""What quantizers with a table share: scalar codebooks, learned, shared, and looked up."""

from __future__ import annotations

import numpy as np

from tensorcomp.codecs.groups import readonly
from tensorcomp.codecs.rounding import check_float, store, work_dtype
from tensorcomp.codecs.words import as_words
from tensorcomp.errors import CodecError

MOST_CODES = 1 << 16
_FEW = 1 << 14  # elements below which a search for each is faster than a table of bins
_BIN_BITS = 16
# Bits of a bin of the histogram, for codebooks up to a size: a bin must be narrow within a cell.
_HISTOGRAMS = ((32, 16), (1024, 19))
_EXACT = 64  # size of a codebook up to which the best cut of the points is found
_CUT_POINTS = 1024
_SMALL = 2.0**-64


def code_dtype(k: int) -> np.dtype:
    """Return the dtype of codes below k."""
    return np.dtype(np.uint8) if k <= 1 << 8 else np.dtype("<u2")


def check_k(k: object) -> None:
    """Require a number of codes from 2 to 65,536.

    Raises
    ------
    ValueError
        If it is none.
    """
    if type(k) is not int or not 2 <= k <= MOST_CODES:
        raise ValueError(f"k is a number from 2 to {MOST_CODES}; got {k!r}")


def learn_codebook(values: np.ndarray, k: int) -> np.ndarray:
    """Return at most k ascending numbers of the values' dtype, for the least squared error.

    Where there are at most k distinct values, these. Everything is IEEE arithmetic in a fixed
    order.

    Parameters
    ----------
    values : numpy.ndarray
        float32 or float64, finite, C-contiguous, read-only.
    k : int
    """
    from tensorcomp.kernels.palette import number

    if values.size == 0:
        return np.empty(0, values.dtype)
    words = as_words(values).reshape(-1)
    found = np.empty(k, words.dtype)
    distinct = number(words, found, np.empty(words.size, np.uint16))
    if distinct >= 0:
        centers = found[:distinct].view(values.dtype)
    else:
        exponent = _exponent(values)
        points, counts = _distribution(values, k, exponent)
        centers = points if points.size <= k else _best_centers(points, counts, k)
        centers = np.ldexp(centers, exponent).astype(values.dtype)
    codebook: np.ndarray = np.unique(centers)
    codebook += values.dtype.type(0)  # so that there is no -0.0
    return codebook


def _best_centers(points: np.ndarray, counts: np.ndarray, k: int) -> np.ndarray:
    """Return k ascending centers of points of which there are more, each so many times."""
    from tensorcomp.kernels import codebooks as kernel

    centers = np.empty(k)
    kernel.place(points, counts, centers)
    if k > _EXACT:
        kernel.lloyd(points, counts, centers)
        return centers
    fine, means, masses = np.empty((3, min(_CUT_POINTS, points.size)))
    kernel.place(points, counts, fine)
    count = kernel.gather(points, counts, fine, means, masses)
    if count <= k:
        kernel.lloyd(points, counts, centers)
        return centers
    best = np.empty(k)
    kernel.cut(means[:count], masses[:count], best)
    error = kernel.lloyd(points, counts, best)
    # Sums over all points lose the small ones where there are huge ones; the error tells.
    return centers if kernel.lloyd(points, counts, centers) < error else best


def _exponent(values: np.ndarray) -> int:
    """Return the power of two by which values are divided, so that normal singles hold them."""
    most = max(values.max(), -values.min())
    return 0 if values.dtype == np.float32 and most > _SMALL else int(np.frexp(most)[1])


def _distribution(values: np.ndarray, k: int, exponent: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ascending points, float64, and how many values each stands for, int64."""
    from tensorcomp.kernels import codebooks as kernel

    flat = values.reshape(-1)
    if exponent:
        flat = np.ldexp(flat, -exponent)
    bits = next((bits for most, bits in _HISTOGRAMS if k <= most), 32)
    if flat.size < 1 << (bits - 4):
        points, counts = np.unique(flat, return_counts=True)
        return points.astype(np.float64), counts.astype(np.int64)
    counts, sums = np.zeros((2, 1 << bits), np.int64)
    kernel.histogram(
        readonly(flat.astype(np.float32, copy=False)).view("<u4"), 32 - bits, counts, sums
    )
    used = np.flatnonzero(counts)
    keys = used.astype(np.uint64) << np.uint64(32 - bits)
    first, next_one = _value_of(keys), _value_of(keys + np.uint64(1))
    counts = counts[used]
    return first + (next_one - first) * (sums[used] / counts), counts


def _value_of(keys: np.ndarray) -> np.ndarray:
    """Return the singles of these keys (see `kernels.codebooks`), as doubles."""
    positive = keys >> np.uint64(31) != 0
    words = np.where(positive, keys ^ np.uint64(1 << 31), ~keys & np.uint64(0xFFFFFFFF))
    return words.astype("<u4").view(np.float32).astype(np.float64)


def nearest(values: np.ndarray, codebook: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the code of the nearest number of an ascending codebook; the lower one of two.

    Parameters
    ----------
    values, codebook : numpy.ndarray
        Of one dtype, float32 or float64.
    dtype : numpy.dtype
        Of the codes.
    """
    from tensorcomp.kernels import codebooks as kernel

    thresholds = 0.5 * codebook[:-1] + 0.5 * codebook[1:]
    thresholds = np.where(thresholds < codebook[1:], thresholds, codebook[:-1])  # neighbours
    thresholds += values.dtype.type(0)  # so that there is no -0.0
    if values.size < _FEW:
        found: np.ndarray = np.searchsorted(thresholds, values)
        return found.astype(dtype)
    words = as_words(readonly(values)).reshape(-1)
    keys = np.full(thresholds.size + 1, np.iinfo(np.uint64).max)
    kernel.order(as_words(thresholds), keys[:-1])
    shift = 8 * words.itemsize - _BIN_BITS
    held = np.bincount((keys[:-1] >> np.uint64(shift)).astype(np.int64), minlength=1 << _BIN_BITS)
    starts = np.zeros(held.size + 1, np.int32)
    np.cumsum(held, out=starts[1:])
    codes = np.empty(values.shape, dtype)
    probes = int(held.max()).bit_length()
    kernel.assign(words, shift, starts, keys, probes, codes.reshape(-1))
    return codes


def look_up(codes: np.ndarray, codebook: np.ndarray, out: np.ndarray, codec: str) -> None:
    """Set `out` to the numbers of a codebook that codes stand for, rounded to its dtype.

    Raises
    ------
    CodecError
        If a code is beyond the codebook, or a number is not finite.
    """
    from tensorcomp.kernels.palette import look_up as kernel

    check_float(out.dtype, codec)
    check_codes(codes, codebook.size, codec)
    if not np.isfinite(codebook).all():
        raise CodecError(f"{codec}: its codebook holds NaN or infinity")
    if codes.size == 0:
        return
    table = np.empty(codebook.shape, out.dtype)
    store(codebook, table)
    kernel(codes.reshape(-1), readonly(as_words(table)), as_words(out).reshape(-1))


def check_codes(codes: np.ndarray, size: int, codec: str) -> None:
    """Require codes below the size of their codebook.

    Raises
    ------
    CodecError
        If one is not.
    """
    if codes.size and int(codes.max()) >= size:
        raise CodecError(f"{codec}: code {codes.max()} of a codebook of {size}")


def unpack_codebook(shared: bytes, dtype: np.dtype, most: int, codec: str) -> np.ndarray:
    """Return the codebook that chunks share: its numbers, little-endian, at most so many.

    Raises
    ------
    CodecError
        If the bytes are no such codebook.
    """
    wide = work_dtype(dtype)
    if len(shared) % wide.itemsize or len(shared) > most * wide.itemsize:
        raise CodecError(f"{codec}: {len(shared)} shared bytes are no codebook")
    return np.frombuffer(shared, wide)
