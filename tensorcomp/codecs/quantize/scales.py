"""Scales of rows and columns, so that one step counts differently in each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import ArraySpec
from tensorcomp.codecs.bit_views import as_rows
from tensorcomp.codecs.feedback import Feedback, FeedbackTransform, Matrix
from tensorcomp.codecs.rounding import check_float, largest, require_finite, widened, work_dtype
from tensorcomp.errors import NotRepresentable
from tensorcomp.kernels import native

PARTS = 4  # of an octave
_ROOTS = np.array([1.0, 1.189207115002721, 1.4142135623730951, 1.681792830507429])
# Of mantissas from 1/2 to 1, where the nearest power of 2**(1/4) becomes the next one.
_BOUNDS = np.array([0.5452538663326288, 0.6484197773255048, 0.7711054127039704, 0.9170040432046712])
_MOST = 127
_COLUMN_SHARE = 0.75  # 1 is right where steps are small; zeros cost less than the theory says


@dataclass(frozen=True)
class Scales(FeedbackTransform):
    """Multiply rows and columns of a matrix by powers of 2**(1/4) first.

    The values that are left have one step, so that a row or column that is multiplied by more is
    rounded to less. With statistics of what the matrix is multiplied with (see `Feedback`) rows are
    scaled by how much the loss feels them, and columns by what their errors are multiplied with,
    and each column makes up for the errors of those before it. Without, rows and columns are
    brought to about the same largest magnitude.

    Parts: ``rows`` and ``columns``, int8: exponents e, one a row (first axis) and one a column (all
    others). ``values``, float32 (float64 for float64 arrays): (columns, rows), or (rows, columns)
    with `axis` 0. An element is value × 2**(-row/4) × 2**(-column/4), each product rounded to the
    type of ``values``, kept within the largest numbers of the array's, and rounded to that.

    Error: that of ``values``, divided by the scales of the element's row and column, and rounding.

    Parameters
    ----------
    axis : int
        1 if values are stored column by column, 0 if row by row. A trellis follows that order.

    Notes
    -----
    Cost: O(n), about 0.8 ns an element of float32 to decode. Not for the smallest error of the
    weights themselves, for which one step is best; it is for the error of what they are used for.

    References
    ----------
    Cover & Thomas 2006, "Elements of Information Theory", 10.3.3, reverse water-filling; for
    weights: "WaterSIC", arXiv 2603.04956.

    Examples
    --------
    >>> from tensorcomp.codecs.text import parse_tree
    >>> parse_tree("scales(values=trellis(0.01))").codec
    Scales(axis=1)
    """

    id: ClassVar[str] = "scales"
    lossless: ClassVar[bool] = False
    zeros: ClassVar[str] = "passed on"
    off_wire: ClassVar[str] = "it is made for weights of which statistics are known"
    long_chunks: ClassVar[bool] = True
    default_parts: ClassVar[Mapping[str, str]] = {
        "rows": "raw(bytes=zstd(level=19))",
        "columns": "raw(bytes=zstd(level=19))",
        "values": "floats",
    }
    axis: int = argument(1, choices=(0, 1))

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the specs of the exponents and of the values."""
        rows, columns = as_rows(np.empty(spec.shape, np.void)).shape if spec.size else (0, 0)
        shape = (columns, rows) if self.axis else (rows, columns)
        exponents = np.dtype(np.int8)
        return {
            "rows": ArraySpec((rows,), exponents),
            "columns": ArraySpec((columns,), exponents),
            "values": ArraySpec(shape, work_dtype(spec.dtype)),
        }

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return exponents and values."""
        matrix = as_rows(widened(array, self.id))
        if not matrix.size:
            return self._parts(np.zeros(0), np.zeros(0), matrix)
        magnitudes = np.abs(matrix).astype(np.float64)
        rows = _leveling(magnitudes.max(axis=1))
        with np.errstate(over="ignore"):
            magnitudes *= factors(rows)[:, None]
            columns = _leveling(magnitudes.max(axis=0))
            scaled = (matrix * factors(rows)[:, None] * factors(columns)).astype(matrix.dtype)
        require_finite(scaled, self.id)
        return self._parts(rows, columns, scaled)

    def _parts(
        self, rows: np.ndarray, columns: np.ndarray, scaled: np.ndarray
    ) -> dict[str, np.ndarray]:
        values = np.ascontiguousarray(scaled.T if self.axis else scaled)
        return {"rows": rows.astype(np.int8), "columns": columns.astype(np.int8), "values": values}

    def encode_with(
        self, feedback: Feedback, array: np.ndarray, matrix: Matrix
    ) -> dict[str, np.ndarray]:
        """Return exponents by the statistics, and values rounded with feedback."""
        if feedback.along != self.axis:
            raise NotRepresentable(f"scales: expected axis {feedback.along}, got {self.axis}")
        outer, inner = row_and_column_exponents(feedback)
        sizes = (factors(inner)[:, None] * factors(outer)).astype(np.float32)
        scaled = replace(matrix, columns=matrix.columns * sizes, in_order=True)
        rounding = scaled.rounding_of("values")
        if rounding is None:
            raise NotRepresentable("scales: its values cannot be rounded column by column")
        points = np.empty_like(scaled.columns)

        def round_column(i: int, targets: np.ndarray, ahead: np.ndarray | None) -> np.ndarray:
            if ahead is not None:
                ahead = ahead * sizes[i + 1]
            points[i] = rounding(i, targets * sizes[i], ahead)
            result: np.ndarray = points[i] / sizes[i]
            return result

        feedback.spread(matrix.columns, round_column)
        values = points.astype(work_dtype(array.dtype), copy=False)
        rows, columns = (outer, inner) if self.axis else (inner, outer)
        return self._parts(rows, columns, values.T if self.axis else values)

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Divide by the scales."""
        check_float(out.dtype, self.id)
        if not out.size:
            return
        values = parts["values"]
        rows, columns = (
            factors(-parts[name].astype(np.int64)).astype(values.dtype)
            for name in ("rows", "columns")
        )
        known = out.dtype == values.dtype
        target = as_rows(out if known else np.empty(out.shape, values.dtype))
        native.scales_restore(values, rows, columns, self.axis == 1, largest(out.dtype), target)
        if not known:
            as_rows(out)[...] = target.astype(out.dtype)


def row_and_column_exponents(feedback: Feedback) -> tuple[np.ndarray, np.ndarray]:
    """Return the exponents of rows (R,) and columns (n,), int64."""
    rows, columns = feedback.logarithms()
    return exponents(rows), exponents(columns * _COLUMN_SHARE)


def exponents(logarithms: np.ndarray) -> np.ndarray:
    """Return log2 of sizes as exponents of 2**(1/4), int64."""
    found = np.rint(PARTS * logarithms)
    result: np.ndarray = np.clip(found, -_MOST, _MOST).astype(np.int64)
    return result


def factors(exponents: np.ndarray) -> np.ndarray:
    """Return 2**(e / 4) of exponents e, float64, the same on every machine."""
    found: np.ndarray = np.ldexp(_ROOTS[exponents % PARTS], exponents // PARTS)
    return found


def _leveling(sizes: np.ndarray) -> np.ndarray:
    """Return exponents that bring sizes to about their mean, the same on every machine."""
    known = (sizes > 0) & (sizes < np.inf)
    mantissas, octaves = np.frexp(np.where(known, sizes, 1.0))
    found = PARTS * (octaves.astype(np.int64) - 1) + np.searchsorted(_BOUNDS, mantissas)
    middle = found[known].sum() // max(np.count_nonzero(known), 1)
    return np.where(known, np.clip(middle - found, -_MOST, _MOST), 0)
