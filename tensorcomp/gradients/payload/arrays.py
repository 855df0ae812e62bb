"""Compute on NumPy arrays and torch tensors alike.

Gradients, residuals and decoded payloads are either; a tensor's own operators do most of the work,
and what is here has another name, or a faster loop, for arrays.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, TypeVar

import numpy as np

from tensorcomp._torch_arrays import as_tensor, torch_to_numpy
from tensorcomp.codecs.rounding import is_real
from tensorcomp.errors import PARSING_ERRORS, GradientError
from tensorcomp.kernels import native

_T = TypeVar("_T")


def host(array: Any) -> np.ndarray:
    """Return an array's values on the host; a NumPy array itself."""
    if isinstance(array, np.ndarray):
        return array
    return torch_to_numpy("a part of a gradient", array)


def floats(name: str, values: Any, dtype: np.dtype | None = None) -> np.ndarray:
    """Return a gradient as a C-contiguous array on the host.

    It is of the dtype given, by default of that which gradients are coded in: float64 of what is as
    wide, float32 of all else.

    Raises
    ------
    GradientError
        If it holds no floats, or no plain values.
    """
    try:
        array = torch_to_numpy(name, values) if hasattr(values, "detach") else np.asarray(values)
    except PARSING_ERRORS as error:
        raise GradientError(f"expected floats for the gradient of {name!r}: {error}") from error
    if not is_real(array.dtype):
        raise GradientError(f"expected floats for the gradient of {name!r}, got {array.dtype}")
    wide = np.float64 if array.dtype.kind == "f" and array.itemsize >= 8 else np.float32
    return np.asarray(array, wide if dtype is None else dtype, order="C")


def prepared(gradient: Any, state: Any, *, takes_tensors: bool) -> Any:
    """Return a gradient as a compressor takes it: contiguous, of its spec.

    A tensor stays one where the compressor takes tensors and its state is not on the host.

    Raises
    ------
    GradientError
        If it holds no floats, no plain values, or not as many as the spec has elements.
    """
    spec = state.spec
    array = gradient
    if type(gradient) is not np.ndarray or gradient.dtype != spec.dtype:
        stays = takes_tensors and hasattr(gradient, "detach") and not _on_host(state)
        if stays and str(gradient.dtype) == f"torch.{spec.dtype}" and _is_plain(gradient):
            array = gradient.detach()
        else:
            array = floats(spec.name, gradient, spec.dtype)
    if math.prod(array.shape) != spec.size:
        raise GradientError(
            f"expected {spec.size} elements for the gradient of {spec.name!r} {spec.shape}, got "
            f"{tuple(array.shape)}"
        )
    if isinstance(array, np.ndarray):
        return np.ascontiguousarray(array) if array.ndim else array
    return array.contiguous()


def _on_host(state: Any) -> bool:
    """Return whether a state holds NumPy arrays."""
    values = (getattr(state, field.name) for field in dataclasses.fields(state))
    return any(
        isinstance(one, np.ndarray) or (dataclasses.is_dataclass(one) and _on_host(one))
        for one in values
    )


def _is_plain(tensor: Any) -> bool:
    """Return whether a tensor is dense and has values."""
    import torch

    return bool(tensor.layout == torch.strided and tensor.device.type != "meta")


def like(array: np.ndarray, other: Any) -> Any:
    """Move an array to where another one is: the host or a device."""
    return array if isinstance(other, np.ndarray) else as_tensor(array).to(other.device)


def move(thing: _T, device: Any) -> _T:
    """Move the arrays of a dataclass and of its fields to a torch device."""
    return _mapped(
        thing, lambda value: as_tensor(value).to(device) if isinstance(value, np.ndarray) else value
    )


def move_to_host(thing: _T) -> _T:
    """Copy the tensors of a dataclass and of its fields to the host."""
    import torch

    return _mapped(
        thing, lambda value: host(value).copy() if isinstance(value, torch.Tensor) else value
    )


def _mapped(thing: _T, change: Any) -> _T:
    changes = {}
    for field in dataclasses.fields(thing):  # type: ignore[arg-type]
        value = getattr(thing, field.name)
        inner = dataclasses.is_dataclass(value)
        changes[field.name] = _mapped(value, change) if inner else change(value)
    return dataclasses.replace(thing, **changes)  # type: ignore[type-var]


def accumulate(values: Any, factor: float, memory: Any, decay: float, out: Any) -> None:
    """Fill `out` with factor · values + decay · memory.

    Products are rounded before they are added, on hosts and devices alike.
    """
    if isinstance(out, np.ndarray):
        native.gradients_accumulate(values, factor, memory, decay, out)
        return
    import torch

    decayed = memory * decay if decay != 1 else memory
    torch.add(values * factor if factor != 1 else values, decayed, out=out)


def copied(array: Any) -> Any:
    """Return a contiguous copy."""
    return array.copy() if isinstance(array, np.ndarray) else array.detach().contiguous().clone()


def zeros_like(array: Any) -> Any:
    """Return contiguous zeros of an array's shape and type."""
    make = np.zeros if isinstance(array, np.ndarray) else array.new_zeros
    return make(array.shape, dtype=array.dtype)


def converted(array: Any, other: Any) -> Any:
    """Convert an array to the type of another one, if it differs."""
    if isinstance(array, np.ndarray):
        return array.astype(other.dtype, copy=False)
    return array.to(other.dtype)


def share_memory(one: Any, other: Any) -> bool:
    """Test whether two flat arrays may share memory."""
    if isinstance(one, np.ndarray):
        return np.may_share_memory(one, other)
    return bool(one.data_ptr() == other.data_ptr())
