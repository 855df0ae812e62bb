"""Quantize by groups of elements, each with a scale of its own.

A group is a run of elements within a row (see `bit_views.as_rows`), a whole row, or the whole
array. Scales are float32, or float64 for float64 arrays, of 11 significant bits, as many as float16
has: more would cost side information and gain nothing.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tensorcomp.codecs.base import ArraySpec, Transform
from tensorcomp.codecs.bit_views import as_words
from tensorcomp.codecs.quantize.codebooks import nearest
from tensorcomp.codecs.rounding import check_float, largest, widened, work_dtype
from tensorcomp.errors import CodecError, NotRepresentable
from tensorcomp.kernels import native

if TYPE_CHECKING:
    from tensorcomp.codecs.feedback import Matrix, Rounding

MAX_GROUP = 1 << 20
_SCALE_BITS = 11


@dataclass(frozen=True)
class Groups:
    """Division of the elements of an array into groups.

    Parameters
    ----------
    rows, columns : int
        The array as a matrix; a single row where all elements are one group.
    length : int
        Elements of a group; the last one of a row may have fewer.
    """

    rows: int
    columns: int
    length: int

    @classmethod
    def of(cls, shape: tuple[int, ...], group: int) -> Groups:
        """Return the groups of an array.

        `group` is 0 for one, -1 for one a row, or a length.
        """
        size = math.prod(shape)
        rows = shape[0] if len(shape) > 1 and group else 1
        if size == 0:
            return cls(0, 0, 1)
        columns = size // rows
        return cls(rows, columns, min(group, columns) if group > 0 else columns)

    @property
    def count(self) -> int:
        """Groups in all."""
        return self.rows * -(-self.columns // self.length)

    def spec(self, dtype: np.dtype) -> ArraySpec:
        """Return the spec of the scales of an array of this dtype."""
        return ArraySpec((self.count,), work_dtype(dtype))

    def _matrix(self, array: np.ndarray) -> np.ndarray:
        return array.reshape(self.rows, self.columns)

    def greatest(self, values: np.ndarray) -> np.ndarray:
        """Return the greatest magnitude in each group."""
        found = np.empty(self.count, values.dtype)
        native.groups_greatest(self._matrix(values), self.length, found)
        return found

    def extremes(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the smallest and the largest element of each group."""
        least, most = np.empty((2, self.count), values.dtype)
        native.groups_extremes(self._matrix(values), self.length, least, most)
        return least, most

    def mean_above(self, values: np.ndarray, floors: np.ndarray | None, codec: str) -> np.ndarray:
        """Return the mean magnitude of the elements above each group's floor.

        Of all elements without floors.

        Raises
        ------
        NotRepresentable
            If the sum of a group is beyond the largest float64.
        """
        means = np.empty(self.count, values.dtype)
        if floors is None:
            floors = np.full(self.count, -1, values.dtype)
        native.groups_mean_above(self._matrix(values), self.length, floors, means)
        if not np.isfinite(means).all():
            raise NotRepresentable(f"{codec}: the sum of a group is beyond the largest float64")
        return means

    def signs_above(self, values: np.ndarray, floors: np.ndarray) -> np.ndarray:
        """Return the signs of elements above their group's floor, int8 matrix."""
        codes = np.empty((self.rows, self.columns), np.int8)
        native.groups_signs_above(self._matrix(values), self.length, floors, codes)
        return codes

    def normalize(
        self, values: np.ndarray, scales: np.ndarray, offsets: np.ndarray | None = None
    ) -> np.ndarray:
        """Return (value - offset) / scale as a matrix; 0 if the scale is 0.

        It has the values' dtype.
        """
        offsets = np.zeros_like(scales) if offsets is None else offsets
        result = np.empty((self.rows, self.columns), values.dtype)
        native.groups_normalize(self._matrix(values), self.length, scales, offsets, result)
        return result

    def restore(
        self,
        codes: np.ndarray,
        scales: np.ndarray,
        out: np.ndarray,
        codec: str,
        offsets: np.ndarray | None = None,
    ) -> None:
        """Set `out` to code × scale + offset, computed in float64.

        Results beyond the largest number of the array's dtype become that number.

        Raises
        ------
        CodecError
            If a scale or an offset is not finite.
        """
        check_float(out.dtype, codec)
        offsets = np.zeros_like(scales) if offsets is None else offsets
        if not (np.isfinite(scales).all() and np.isfinite(offsets).all()):
            raise CodecError(f"{codec}: a scale or an offset is not finite")
        known = out.dtype.kind == "f" and out.itemsize >= 4
        target = out if known else np.empty(out.shape, np.float32)
        signed = codes.dtype.kind == "i"
        words = self._matrix(as_words(codes))
        limit = largest(out.dtype)
        to = self._matrix(target)
        native.groups_restore(words, signed, self.length, scales, offsets, limit, to)
        if not known:
            out[...] = target.astype(out.dtype)


def rounding_in_groups(
    matrix: Matrix,
    group: int,
    levels: Sequence[float],
    scales: np.ndarray,
    offsets: np.ndarray | None = None,
) -> Rounding:
    """Return how columns are rounded to level × scale + offset.

    Scales are known before. The extremes of a group keep the outermost levels, so that the same
    scales follow from what is rounded. Offsets are the smallest elements of groups.
    """
    values, table = matrix.coded(), np.array(levels, np.float64)
    groups = Groups.of(values.shape, group)
    if offsets is None:
        most = groups.greatest(values)
        least, offsets = -most, np.zeros_like(most)
    else:
        least, most = groups.extremes(values)
    numbers = np.array([scales, offsets, least, most], np.float64).reshape(4, groups.rows, -1)
    places = np.arange(values.shape[1]) // groups.length

    def round_column(i: int, targets: np.ndarray, _ahead: np.ndarray | None) -> np.ndarray:
        row = i % groups.rows  # all rows may be one group
        own = numbers[:, row, places] if matrix.in_order else numbers[..., i // groups.length]
        scale, offset, low, high = own
        steps = np.divide(targets - offset, scale, out=np.zeros(targets.size), where=scale > 0)
        found = table[nearest(steps, table, np.dtype(np.uint8))]
        found = np.where(matrix.columns[i] == high, table[-1], found)
        found = np.where(matrix.columns[i] == low, table[0], found)
        result: np.ndarray = (found * scale + offset).astype(np.float32)
        return result

    return round_column


class GroupQuantizer(Transform):
    """Base class of quantizers whose values are a code times a group's scale.

    Their field `group` says how large a group is.

    Attributes
    ----------
    codes : str
        The name of the codes' part.
    codes_dtype : type
    levels : sequence of float
        The factors of the scales, ascending.
    """

    lossless: ClassVar[bool] = False
    elementwise: ClassVar[bool] = True
    codes: ClassVar[str] = "codes"
    codes_dtype: ClassVar[type[np.generic]] = np.int8
    levels: ClassVar[Sequence[float]]
    group: int

    @abstractmethod
    def quantize(self, values: np.ndarray, groups: Groups) -> tuple[np.ndarray, np.ndarray]:
        """Return the scales, and the codes in the order of the values."""

    @abstractmethod
    def multiples(self, codes: np.ndarray) -> np.ndarray:
        """Return the factors of the scales; raise `CodecError` for a wrong code."""

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the specs of a scale for each group, and of the codes."""
        scales = Groups.of(spec.shape, self.group).spec(spec.dtype)
        return {"scales": scales, self.codes: ArraySpec(spec.shape, np.dtype(self.codes_dtype))}

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return scales and codes."""
        groups = Groups.of(array.shape, self.group)
        scales, codes = self.quantize(widened(array, self.id), groups)
        return {"scales": scales, self.codes: codes.reshape(array.shape)}

    def rounding(self, matrix: Matrix) -> Rounding | None:
        """Return the rounding to levels × scales; None for scattered elements."""
        if matrix.in_order is None:
            return None
        values = matrix.coded()
        scales, _ = self.quantize(values, Groups.of(values.shape, self.group))
        return rounding_in_groups(matrix, self.group, self.levels, scales)

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Multiply."""
        multiples = self.multiples(parts[self.codes])
        Groups.of(out.shape, self.group).restore(multiples, parts["scales"], out, self.id)


def short(scales: np.ndarray) -> np.ndarray:
    """Return scales rounded to 11 significant bits.

    None that is not 0 becomes 0, or infinite.
    """
    mantissas, exponents = np.frexp(scales)
    unit = 1 << _SCALE_BITS
    most = np.where(exponents == np.finfo(scales.dtype).maxexp, unit - 1, unit)
    rounded = np.minimum(np.rint(mantissas * unit), most) / unit
    result: np.ndarray = np.ldexp(rounded.astype(scales.dtype), exponents)
    return result
