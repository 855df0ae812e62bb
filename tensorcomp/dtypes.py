"""The dtype table: names in safetensors, in NumPy and torch, and sizes.

NumPy has no bfloat16 and no fp8; `ml_dtypes` provides them, under the names that torch uses. A name
that this table lacks is not an error: such a tensor travels as opaque bytes, so that files of a
future safetensors still work.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

# By safetensors' name: the name that NumPy, or else ml_dtypes, and torch share, and bits. Types of
# less than a byte have none: several elements share a byte, so NumPy sees their bytes only.
_TABLE: dict[str, tuple[str | None, int]] = {
    "BOOL": ("bool", 8),
    "U8": ("uint8", 8),
    "I8": ("int8", 8),
    "U16": ("uint16", 16),
    "I16": ("int16", 16),
    "U32": ("uint32", 32),
    "I32": ("int32", 32),
    "U64": ("uint64", 64),
    "I64": ("int64", 64),
    "F16": ("float16", 16),
    "F32": ("float32", 32),
    "F64": ("float64", 64),
    "C64": ("complex64", 64),
    "C128": ("complex128", 128),
    "BF16": ("bfloat16", 16),
    "F8_E4M3": ("float8_e4m3fn", 8),
    "F8_E5M2": ("float8_e5m2", 8),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", 8),
    "F8_E5M2FNUZ": ("float8_e5m2fnuz", 8),
    "F8_E8M0": ("float8_e8m0fnu", 8),
    "F4": (None, 4),
    "F6_E2M3": (None, 6),
    "F6_E3M2": (None, 6),
}
# By ggml's name: the weights and the bytes of a block. Such tensors stand in GGUF files.
_BLOCKS: dict[str, tuple[int, int]] = {
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q5_0": (32, 22),
    "Q5_1": (32, 24),
    "Q8_0": (32, 34),
    "Q2_K": (256, 84),
    "Q3_K": (256, 110),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
    "IQ4_NL": (32, 18),
    "IQ4_XS": (256, 136),
    "TQ1_0": (256, 54),
    "TQ2_0": (256, 66),
    "MXFP4": (32, 17),
    "NVFP4": (64, 36),
    "IQ1_S": (256, 50),
    "IQ1_M": (256, 56),
    "IQ2_XXS": (256, 66),
    "IQ2_XS": (256, 74),
    "IQ2_S": (256, 82),
    "IQ3_XXS": (256, 98),
    "IQ3_S": (256, 110),
}
_NAMES = {common: name for name, (common, _) in _TABLE.items() if common is not None}
_FLOAT_KINDS = frozenset("fV")  # V, or f by recent versions, is ml_dtypes' kind


def common_name(name: str) -> str | None:
    """Return the name of a safetensors dtype in NumPy and torch, if they have it."""
    return _TABLE.get(name, (None, 0))[0]


@functools.cache
def numpy_dtype(name: str) -> np.dtype | None:
    """Return the NumPy dtype of a safetensors dtype, None if it stays opaque."""
    common = common_name(name)
    if common is None:
        return None
    if hasattr(np, common):
        return np.dtype(np.dtype(common).newbyteorder("<").str)  # native where that is so
    import ml_dtypes

    dtype: np.dtype = np.dtype(getattr(ml_dtypes, common))
    return dtype


@functools.cache
def dtype_name(dtype: np.dtype) -> str:
    """Return the safetensors name of a NumPy dtype, whatever its byte order.

    Raises
    ------
    TypeError
        If no safetensors dtype has these values (strings, objects, long double, …).
    """
    dtype = np.dtype(dtype)
    name = _NAMES.get(dtype.name)
    if name is None:
        known = ", ".join(_NAMES.values())
        raise TypeError(f"dtype {dtype} has no safetensors equal; use one of {known}")
    return name


def dtype_bits(name: str) -> int | None:
    """Return the bits per element of a safetensors dtype, None if unknown."""
    return _TABLE.get(name, (None, None))[1]


def block_size(name: str) -> tuple[int, int] | None:
    """Return the weights and bytes of a ggml type's block, None if it is none."""
    return _BLOCKS.get(name)


def holds_floats(dtype: np.dtype) -> bool:
    """Return whether a dtype holds floats: NumPy's own, bfloat16 or fp8."""
    return dtype.kind in _FLOAT_KINDS


def torch_dtype(name: str) -> torch.dtype | None:
    """Return the torch dtype of a safetensors dtype, None if torch lacks it."""
    import torch

    found: Any = getattr(torch, common_name(name) or "", None)
    return found if isinstance(found, torch.dtype) else None


def torch_dtype_name(dtype: torch.dtype) -> str | None:
    """Return the safetensors name of a torch dtype, or None if it has none."""
    return _NAMES.get(str(dtype).removeprefix("torch."))
