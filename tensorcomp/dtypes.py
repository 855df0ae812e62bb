"""Data types: safetensors' names, their NumPy equals, and their sizes.

NumPy has no bfloat16 and no fp8; `ml-dtypes` provides them. A name that this table lacks is not an
error: such a tensor travels as opaque bytes, so that files of a future safetensors still work.
"""

from __future__ import annotations

import functools

import numpy as np

_NUMPY: dict[str, np.dtype] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "C64": np.dtype("<c8"),
    "C128": np.dtype("<c16"),
}
_NAMES = {dtype: name for name, dtype in _NUMPY.items()}

# Those of `ml-dtypes`, which is imported when one of them is met.
_ML = {
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
}
_ML_NAMES = {ml: name for name, ml in _ML.items()}

_BITS = {
    **{name: 8 * dtype.itemsize for name, dtype in _NUMPY.items()},
    **{name: 16 if name == "BF16" else 8 for name in _ML},
    # Types of less than a byte: several elements share one, so NumPy sees their bytes only.
    **{"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6},
}


def numpy_dtype(name: str) -> np.dtype | None:
    """Return the NumPy dtype of a safetensors dtype name, or None where its bits stay opaque."""
    return _ml_dtype(_ML[name]) if name in _ML else _NUMPY.get(name)


@functools.cache
def _ml_dtype(name: str) -> np.dtype:
    import ml_dtypes

    dtype: np.dtype = np.dtype(getattr(ml_dtypes, name))
    return dtype


@functools.cache
def dtype_name(dtype: np.dtype) -> str:
    """Return the safetensors name of a NumPy dtype.

    Raises
    ------
    TypeError
        If no safetensors dtype has these values (strings, objects, long double, …).
    """
    dtype = np.dtype(dtype)
    name = _NAMES.get(dtype.newbyteorder("<")) or _ML_NAMES.get(dtype.name)
    if name is None:
        known = ", ".join((*_NUMPY, *_ML))
        raise TypeError(f"dtype {dtype} has no safetensors equal; use one of {known}")
    return name


def dtype_bits(name: str) -> int | None:
    """Return the bits of one element of a safetensors dtype, or None if the name is unknown."""
    return _BITS.get(name)
