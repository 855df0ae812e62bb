"""Compute on NumPy arrays and torch tensors alike.

Gradients, residuals and decoded payloads are either; a tensor's own operators do most of the work,
and what is here has another name, or a faster loop, for arrays.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import numpy as np

from tensorcomp._torch_arrays import as_tensor, torch_to_numpy
from tensorcomp.kernels import native

_T = TypeVar("_T")


def host(array: Any) -> np.ndarray:
    """Return an array's values on the host; a NumPy array itself."""
    if isinstance(array, np.ndarray):
        return array
    return torch_to_numpy("a part of a gradient", array)


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
