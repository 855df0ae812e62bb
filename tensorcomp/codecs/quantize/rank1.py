"""Second moments by the means of their rows and columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.base import ArraySpec, Transform
from tensorcomp.codecs.bit_views import as_rows
from tensorcomp.codecs.quantize.scales import PARTS, factors
from tensorcomp.codecs.rounding import check_float, widened
from tensorcomp.errors import CodecError, NotRepresentable

_BYTE = np.dtype(np.int8)
_ZERO = -128  # in place of an exponent: a row or column of zeros
_LOWEST = -127
_STEPS = 2  # to an octave
# Of mantissas from 1/2 to 1, where the nearest power of 2**(1/2) becomes the next one.
_BOUNDS = np.array([0.5946035575013605, 0.8408964152537145])


@dataclass(frozen=True)
class Rank1(Transform):
    """Keep the means of the rows and columns of a non-negative matrix.

    An element becomes mean of its row × mean of its column / mean of all. Adam's second moments
    are nearly that: a step is divided by their root, which is off by a fifth or so, and what they
    say of rows and columns, which is what matters, is kept.

    Parts: ``scale``, float64, one number. ``rows`` and ``columns``, int8: exponents e from −127 to
    0, one a row (first axis) and one a column (all others) as far below the largest; −128 marks
    zeros. An element is 2**(row / 2) × 2**(column / 2) × scale in float64, kept within
    the numbers of the array's type above 0, and rounded to it. With the scale, their mean is that
    of the array.

    Error: whatever an element differs from that product by; 0.5 octave or so of second moments.
    What is decoded is zero where a whole row or column is zero, and nowhere else: no element that
    is above zero becomes zero. The smallest rows and columns may be decoded to more than they were.

    Notes
    -----
    Cost: O(n), about 10 ns an element to encode and 5 ns to decode; 4 bits or so a row and column.
    Only for second moments of which a decoder may make an optimizer go on. Not for arrays with
    elements that are negative, NaN or infinite.

    References
    ----------
    Shazeer & Stern 2018, "Adafactor: adaptive learning rates with sublinear memory cost".

    Examples
    --------
    >>> from tensorcomp.codecs.text import parse_tree
    >>> parse_tree("rank1").codec
    Rank1()
    """

    id: ClassVar[str] = "rank1"
    lossless: ClassVar[bool] = False
    since_format: ClassVar[int] = 10
    off_wire: ClassVar[str] = "it is made for second moments, which a gradient is none of"
    long_chunks: ClassVar[bool] = True
    default_parts: ClassVar[Mapping[str, str]] = {
        "scale": "raw",
        **dict.fromkeys(("rows", "columns"), "raw(bytes=zstd(level=19))"),
    }

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the specs of the scale and of the exponents."""
        rows, columns = as_rows(np.empty(spec.shape, np.void)).shape if spec.size else (0, 0)
        scale = ArraySpec((min(spec.size, 1),), np.dtype(np.float64))
        lengths = {"rows": rows, "columns": columns}
        return {"scale": scale} | {name: ArraySpec((n,), _BYTE) for name, n in lengths.items()}

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return the exponents of means, and the scale that keeps the mean."""
        matrix = as_rows(widened(array, self.id))
        if matrix.min(initial=0) < 0:
            raise NotRepresentable(f"{self.id}: expected no negative elements, got some")
        with np.errstate(over="ignore"):
            sums = _sums(matrix.T), _sums(matrix)
            rows, columns = map(_exponents, sums)
            sizes = _sums(_sizes(rows)) * _sums(_sizes(columns))
            scale = _sums(sums[0]) / np.maximum(sizes, 1.0)
        if not np.isfinite(scale).all():
            raise NotRepresentable(f"{self.id}: the sum of the elements is too large")
        return {"scale": scale[: matrix.size], "rows": rows, "columns": columns}

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Multiply the sizes of rows and columns."""
        check_float(out.dtype, self.id)
        if not out.size:
            return
        scale, exponents = float(parts["scale"][0]), (parts["rows"], parts["columns"])
        if not 0 <= scale < np.inf or any((one > 0).any() for one in exponents):
            raise CodecError(f"{self.id}: its scale or its exponents are out of range")
        rows, columns = map(_sizes, exponents)
        import ml_dtypes

        info = ml_dtypes.finfo(out.dtype)
        with np.errstate(all="ignore"):
            found = np.outer(rows * scale, columns)
            np.clip(found, float(info.smallest_subnormal), float(info.max), out=found)
            found[rows == 0] = 0
            found[:, columns == 0] = 0
            as_rows(out)[...] = found.astype(out.dtype)


def _exponents(sums: np.ndarray) -> np.ndarray:
    """Return the exponents of the sums of rows or columns, as they are stored."""
    known = sums > 0
    mantissas, octaves = np.frexp(np.where(known, sums, 1.0))
    found = _STEPS * octaves.astype(np.int64) + np.searchsorted(_BOUNDS, mantissas)
    below = np.maximum(found - found[known].max(initial=-(1 << 12)), _LOWEST)
    return np.where(known, below, _ZERO).astype(np.int8)


def _sizes(exponents: np.ndarray) -> np.ndarray:
    """Return the sizes that exponents stand for, float64."""
    sizes = factors(exponents.astype(np.int64) * (PARTS // _STEPS))
    return np.where(exponents == _ZERO, 0.0, sizes)


def _sums(values: np.ndarray) -> np.ndarray:
    """Return the sums over the first axis, halves added to halves, float64; of a vector, one."""
    sums = np.atleast_2d(values.T).T.astype(np.float64)
    while len(sums) > 1:
        half = len(sums) // 2
        odd = sums[2 * half :]
        sums = sums[:half] + sums[half : 2 * half]
        sums[: len(odd)] += odd
    found: np.ndarray = sums[0] if len(sums) else np.zeros(sums.shape[1])
    return found
