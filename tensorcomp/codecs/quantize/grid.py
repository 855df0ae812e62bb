"""Floats that are integers times a step, stored as those integers.

Dequantized and fake-quantized weights are such.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import ArraySpec, Transform
from tensorcomp.codecs.bit_views import as_rows
from tensorcomp.errors import CodecError, NotRepresentable
from tensorcomp.kernels import native

_PROBE = 256  # elements that usually show that an array is not a grid
_MIN_ROW = 8  # shorter rows cannot pay for scales of their own
_GROUPS = (128, 64, 32)  # usual lengths of runs within a row


# Bits of the fraction and exponent of the smallest normal number, by the dtype's name.
_FORMATS = {
    "float64": (52, -1022),
    "float32": (23, -126),
    "float16": (10, -14),
    "bfloat16": (7, -126),
}


@dataclass(frozen=True)
class IntegerGrid(Transform):
    """Store floats as integers q and steps s with value = q × s, exactly.

    The product is rounded once. Floats for which there are none are refused.

    One step may hold for the whole array, for each row (first axis), or for each 128, 64 or 32
    elements of a row; it may come from the greatest magnitude (absmax / 127, / 7, …), be a power of
    two or anything else, computed in float or double. The step is found from the values alone;
    among those that give every value bit for bit, one of few significant bits is kept.

    Parts: ``scales``, float64, one for each run of elements of equal length in row-major order;
    ``codes``, signed, of the array's shape. A value is the double product of its code and scale,
    rounded to the array's dtype. A scale with its sign bit set says that −0.0 occurs in the array:
    code −1 is then −0.0, and lower codes stand for an integer one higher.

    Parameters
    ----------
    bits : int
        8 or 16, the width of the codes. Integers reach from −128 to 127, or −32,768 to 32,767; one
        less on the negative side where −0.0 occurs.

    Notes
    -----
    Lossless, for float64, float32, float16 and bfloat16. Cost: O(n), 4 to 8 ns an element to
    encode, 0.2 to 1 ns to decode (float16: 3); ordinary weights are refused after one run, in some
    microseconds. Not for arrays with a scale for each column, nor for NaN or infinity.

    References
    ----------
    Such grids: Jacob et al. 2018, "Quantization and Training of Neural Networks for Efficient
    Integer-Arithmetic-Only Inference".
    """

    id: ClassVar[str] = "grid"
    off_wire: ClassVar[str] = "it looks for stored weights' grids, which gradients lack"
    default_parts: ClassVar[Mapping[str, str]] = {"scales": "fields", "codes": "ans(contexts=8)"}
    bits: int = argument(16, choices=(8, 16))

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the spec of as many scales as the data need, and that of the codes."""
        return {
            "scales": ArraySpec((-1,), np.dtype(np.float64)),
            "codes": ArraySpec(spec.shape, np.dtype(f"<i{self.bits // 8}")),
        }

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return scales and codes."""
        _format_of(array.dtype)
        rows = as_rows(array)
        if rows.size == 0:
            codes = np.empty(array.shape, np.dtype(f"<i{self.bits // 8}"))
            return {"scales": np.empty(0), "codes": codes}
        lengths = _run_lengths(*rows.shape)
        # What the first of the shortest runs refuses, longer ones do too.
        if self._find(rows.reshape(-1, lengths[-1])[:1, :_PROBE]):
            for length in lengths:
                runs = rows.reshape(-1, length)
                if self._find(runs[:1, :_PROBE]) and (found := self._find(runs)):
                    scales, codes = found
                    return {"scales": scales, "codes": codes.reshape(array.shape)}
        raise NotRepresentable("grid: the values are not integers times a step for each row")

    def _find(self, runs: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the scales and codes of runs (R, C), or None."""
        mantissa, lowest = _format_of(runs.dtype)
        values = runs if runs.itemsize > 2 else runs.astype(np.float32)  # which kernels know
        limit = float(1 << min(self.bits - 1, mantissa + 1))  # above it integers look alike
        steps = np.empty(values.shape[0])
        wide = np.empty(values.shape, np.int32)
        if not native.grid_find_steps(values, limit, mantissa, lowest, steps, wide):
            return None
        negative_zeros = (values == 0) & np.signbit(values)
        if negative_zeros.any():  # room for −0.0 at code −1: lower codes move down by one
            wide -= (wide < 0) | negative_zeros
            steps = -steps
        codes = wide.astype(f"<i{self.bits // 8}")
        return (steps, codes) if (codes == wide).all() else None

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Multiply."""
        mantissa, lowest = _format_of(out.dtype)
        scales, codes = parts["scales"], parts["codes"]
        if out.size == 0:
            return
        if not scales.size or out.size % scales.size:
            raise CodecError(
                f"grid: expected scales that divide {out.size} elements, got {scales.size}"
            )
        known = out.dtype.itemsize > 2
        target = out if known else np.empty(out.shape, np.float32)
        runs, to = codes.reshape(scales.size, -1), target.reshape(scales.size, -1)
        native.grid_restore(runs, scales, mantissa, lowest, to)
        if not known:
            with np.errstate(all="ignore"):  # damaged scales may give what no float16 holds
                out[...] = target.astype(out.dtype)


@functools.cache  # NumPy derives a dtype's name anew each time
def _format_of(dtype: np.dtype) -> tuple[int, int]:
    form = _FORMATS.get(dtype.name) if dtype.isnative else None
    if form is None:
        raise NotRepresentable(f"grid: {dtype} is not among {', '.join(_FORMATS)}")
    return form


def _run_lengths(rows: int, columns: int) -> list[int]:
    """Return the lengths of runs that may share a scale: all, a row, groups within rows."""
    if columns < _MIN_ROW:
        return [rows * columns]
    groups = [g for g in _GROUPS if g < columns and columns % g == 0]
    return [*([rows * columns] if rows > 1 else []), columns, *groups]
