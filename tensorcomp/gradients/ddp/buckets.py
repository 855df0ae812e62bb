"""Load the values of a bucket, and store means in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tensorcomp.gradients.ddp.coding_groups import Layout
from tensorcomp.gradients.ddp.communicator import Scratch
from tensorcomp.gradients.ddp.reduce_context import GroupWork
from tensorcomp.gradients.ddp.state_store import StateStore
from tensorcomp.kernels import native

_CODED = (torch.float32, torch.float64)  # others are widened
_EXPONENTS = {4: (np.uint32, 0x7F800000), 8: (np.uint64, 0x7FF0000000000000)}
_SAMPLE = 997


def coded_dtype(dtype: torch.dtype) -> np.dtype:
    """Return the dtype in which gradients are coded: float64 or float32."""
    return np.dtype(np.float64 if dtype == torch.float64 else np.float32)


def load(
    buffer: torch.Tensor, factor: float, scratch: Scratch, key: str, *, stay: bool = False
) -> Any:
    """Return a bucket's gradients times a factor, (n,), in place if possible.

    float32 and float64 may be changed in place. With `stay` it is a tensor on the buffer's device,
    otherwise an array; the scratch memory of the key is used where the dtype or device differs.
    """
    flat = buffer.detach()
    values: Any
    if stay:
        values = flat if flat.dtype in _CODED else flat.float()
    elif buffer.device.type == "cpu" and buffer.dtype in _CODED:
        values = flat.numpy()
    else:
        values = scratch.array(("bucket", key), buffer.numel(), coded_dtype(buffer.dtype))
        torch.from_numpy(values).copy_(flat)
    if factor != 1.0:
        values *= factor
    return values


def store(values: Any, factor: float, buffer: torch.Tensor) -> bool:
    """Store values times a factor in a bucket; return whether all are finite.

    Finite gradients and residuals may overflow in their sums, by the factor, or in the bucket's
    dtype; all ranks have the same means, so they find it alike.
    """
    if factor != 1.0:
        with np.errstate(over="ignore"):  # it is looked for
            values *= factor
    tensor = torch.from_numpy(values) if isinstance(values, np.ndarray) else values
    if tensor.data_ptr() == buffer.data_ptr():
        return is_finite(values)
    buffer.detach().copy_(tensor)
    return is_finite(buffer)


def is_finite(values: Any) -> bool:
    """Return whether a tensor or contiguous array is free of NaN and infinity."""
    if isinstance(values, torch.Tensor):
        return bool(torch.isfinite(values).all().item())
    word, exponent = _EXPONENTS[values.dtype.itemsize]
    return bool(native.gradients_is_finite(values.reshape(-1).view(word), exponent))


def open_works(
    layout: Layout, values: Any, states: StateStore, *, skip_unused: bool
) -> list[GroupWork]:
    """Return a bucket's groups as work to be done, given its values (n,).

    With `skip_unused` groups whose gradient is all zero are silent.
    """
    works = []
    for group in layout.groups:
        flat = values[group.where]  # a view if it is a slice
        silent = skip_unused and not bool(flat[::_SAMPLE].any()) and not bool(flat.any())
        gradient = flat.reshape(group.spec.shape)
        works.append(GroupWork(group, gradient, flat, states.state(group), silent))
    return works


def close_works(works: list[GroupWork], values: Any) -> None:
    """Scatter means of non-contiguous groups into the bucket's values (n,)."""
    for work in works:
        if not isinstance(work.group.where, slice):
            values[work.group.where] = work.mean
