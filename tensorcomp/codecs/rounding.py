"""Widen floats to compute with them; round results to the type of the output.

Everything that decides a byte or a decoded value is IEEE arithmetic in a fixed order, so that equal
inputs give equal results on every machine.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from tensorcomp.errors import CodecError, NotRepresentable

_PIECE = 1 << 20  # elements looked at together
_FAR = 200  # binary exponent of doubles
_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


def widened(array: np.ndarray, codec: str) -> np.ndarray:
    """Return a float array's values in the type to compute in.

    That is float32, or float64 for float64.

    Parameters
    ----------
    array : numpy.ndarray
    codec : str
        The id of the codec that asks, for the message.

    Raises
    ------
    NotRepresentable
        If the array holds no floats, or NaN or infinity.
    """
    wide = as_reals(array, codec).reshape(array.shape)
    require_finite(wide, codec)
    wide.flags.writeable = False
    return wide


def as_reals(array: np.ndarray, codec: str) -> np.ndarray:
    """Return a float array's values as `widened` does, flat.

    They may be NaN or infinite.
    """
    if not is_real(array.dtype):
        raise NotRepresentable(f"{codec}: expected a float type with a zero, got {array.dtype}")
    return array.astype(work_dtype(array.dtype), order="C", copy=False).reshape(-1)


def require_finite(array: np.ndarray, codec: str) -> None:
    """Raise `NotRepresentable` where a float array holds NaN or infinity."""
    if not all_finite(array):
        raise NotRepresentable(f"{codec}: the array holds NaN or infinity")


@functools.cache
def is_float(dtype: np.dtype) -> bool:
    """Return whether a dtype is a float type of NumPy or of ml_dtypes."""
    if dtype.kind != "V":
        return dtype.kind == "f"
    import ml_dtypes  # not for NumPy's own types

    try:
        ml_dtypes.finfo(dtype)
    except ValueError:
        return False
    return True


@functools.cache
def is_real(dtype: np.dtype) -> bool:
    """Return whether a dtype is a float type that has a zero.

    E8M0, made for scales, has none.
    """
    return is_float(dtype) and bool(np.zeros(1, np.float32).astype(dtype)[0] == 0)


def as_matrix(array: np.ndarray) -> np.ndarray:
    """Return a float array as a matrix of doubles, to compare its elements.

    Its first axis × all others; a vector is one row. Doubles are scaled (see `scaled_to_unit`).
    """
    wide = np.asarray(scaled_to_unit(array)[0], np.float64)
    return wide.reshape(wide.shape[0] if wide.ndim > 1 else 1, -1)


def scaled_to_unit(array: np.ndarray) -> tuple[np.ndarray, int]:
    """Return a float array times a power of two, and the exponent of that.

    Doubles so large or small that the fourth power of one leaves the range of float64 are brought
    below 1; other arrays stay as they are.
    """
    top = float(np.abs(array).max(initial=0.0)) if array.dtype == _DOUBLE else 1.0
    exponent = math.frexp(top)[1]
    if abs(exponent) < _FAR:
        return array, 0
    scaled: np.ndarray = np.ldexp(array, -exponent)
    return scaled, exponent


def check_float(dtype: np.dtype, codec: str) -> None:
    """Require a float type, one that has a zero, of what a codec decodes."""
    if not is_real(dtype):
        raise CodecError(f"{codec}: expected a float type with a zero, got {dtype}")


def all_finite(array: np.ndarray) -> bool:
    """Return whether all elements of a float array are finite.

    They are looked at a piece at a time.
    """
    flat = array.reshape(-1)
    with np.errstate(invalid="ignore"):  # signalling NaN
        return all(np.isfinite(flat[i : i + _PIECE]).all() for i in range(0, flat.size, _PIECE))


def peak(array: np.ndarray) -> float:
    """Return the largest magnitude of a float array, NaN if it holds one.

    It is looked at a piece at a time.
    """
    flat = array.reshape(-1)
    found = 0.0
    with np.errstate(invalid="ignore"):
        for start in range(0, flat.size, _PIECE):
            piece = np.abs(flat[start : start + _PIECE].astype(work_dtype(flat.dtype)))
            found = float(np.maximum(found, piece.max()))
    return found


def work_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype in which values of a float dtype are computed."""
    return _DOUBLE if dtype == _DOUBLE else _SINGLE


@functools.cache
def largest(dtype: np.dtype) -> float:
    """Return the largest finite number of a float dtype."""
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).max)


def store(values: np.ndarray, out: np.ndarray) -> None:
    """Round values into `out`, clipped to its largest finite numbers."""
    limit = largest(out.dtype)
    fits = limit >= largest(values.dtype) or not values.size
    if not (fits or -limit <= values.min() <= values.max() <= limit):
        values = np.clip(values, -limit, limit)
    with np.errstate(all="ignore"):
        out[...] = values.astype(out.dtype)
