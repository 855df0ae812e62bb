"""The values of a bucket as NumPy arrays, and means put back into it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tensorcomp.gradients.ddp.coding_groups import Layout, Unit, UnitWork
from tensorcomp.gradients.ddp.state_store import Memory
from tensorcomp.kernels import native

_CODED = {torch.float32: torch.float32, torch.float64: torch.float64}  # others are widened
_EXPONENTS = {4: (np.uint32, 0x7F800000), 8: (np.uint64, 0x7FF0000000000000)}
_SAMPLE = 997


def coded_dtype(dtype: torch.dtype) -> np.dtype:
    """Return the dtype in which gradients are coded: float64, or float32 for all others."""
    return np.dtype(np.float64 if dtype == torch.float64 else np.float32)


class Scratch:
    """Arrays that are used again: fresh memory costs a page fault every 4 KiB."""

    def __init__(self) -> None:
        self._arrays: dict[object, np.ndarray] = {}

    def array(self, key: object, size: int, dtype: np.dtype) -> np.ndarray:
        """Return a flat array of any content; the one that a key had before becomes invalid."""
        kept = self._arrays.get(key)
        if kept is None or kept.size < size or kept.dtype != dtype:
            kept = self._arrays[key] = np.empty(size, dtype)
        return kept[:size]


def load(buffer: torch.Tensor, factor: float, scratch: Scratch, key: str) -> np.ndarray:
    """Return a bucket's gradients times a factor, (n,): its own memory where possible.

    Parameters
    ----------
    buffer : torch.Tensor
        (n,) floats on any device; float32 and float64 on the CPU are changed in place.
    factor : float
    scratch : Scratch
    key : str
        Of the bucket.
    """
    flat = buffer.detach()
    dtype = coded_dtype(buffer.dtype)
    if buffer.device.type == "cpu" and buffer.dtype in _CODED:
        values: np.ndarray = flat.numpy()
    else:
        values = scratch.array(("bucket", key), buffer.numel(), dtype)
        torch.from_numpy(values).copy_(flat)
    if factor != 1.0:
        np.multiply(values, dtype.type(factor), out=values)
    return values


def store(values: np.ndarray, factor: float, buffer: torch.Tensor) -> bool:
    """Put values times a factor into a bucket, and return whether all are finite there.

    Finite gradients and residuals may overflow in their sums, by the factor, or in the bucket's
    dtype; all ranks have the same means, so they find it alike.
    """
    if factor != 1.0:
        with np.errstate(over="ignore"):  # it is looked for
            np.multiply(values, values.dtype.type(factor), out=values)
    own = buffer.device.type == "cpu" and buffer.dtype in _CODED
    if not own:
        buffer.detach().copy_(torch.from_numpy(values))
    return is_finite(values) if own else bool(torch.isfinite(buffer).all().item())


def as_bytes(buffer: torch.Tensor) -> np.ndarray:
    """Return the bytes of a bucket, uint8: a view where it is on the CPU."""
    array: np.ndarray = buffer.detach().view(torch.uint8).cpu().numpy()
    return array


def is_finite(values: np.ndarray) -> bool:
    """Return whether a contiguous array holds neither NaN nor infinities."""
    word, exponent = _EXPONENTS[values.dtype.itemsize]
    return bool(native.gradients_is_finite(values.reshape(-1).view(word), exponent))


def open_works(
    layout: Layout, values: np.ndarray, memory: Memory, scratch: Scratch, *, skip_unused: bool
) -> list[UnitWork]:
    """Return a bucket's units as work to be done.

    Parameters
    ----------
    layout : Layout
    values : numpy.ndarray
        (n,) of the bucket.
    memory : Memory
    scratch : Scratch
    skip_unused : bool
        Whether units whose gradient is all zero are silent.
    """
    works = []
    for unit in layout.units:
        flat = _elements(unit, values, scratch)
        silent = skip_unused and not flat[::_SAMPLE].any() and not flat.any()
        state = memory.state(unit)
        works.append(UnitWork(unit, flat.reshape(unit.spec.shape), flat, state, silent))
    return works


def close_works(works: list[UnitWork], values: Any) -> None:
    """Put the means of units whose parameters are apart into the bucket's values (n,)."""
    for work in works:
        if work.unit.place is None:
            start = 0
            for piece in work.unit.pieces:
                stop = start + piece.stop - piece.start
                values[piece.start : piece.stop] = work.mean[start:stop]
                start = stop


def _elements(unit: Unit, values: np.ndarray, scratch: Scratch) -> np.ndarray:
    if unit.place is not None:
        start, stop = unit.place
        return values[start:stop]
    out = scratch.array(unit.key, unit.spec.size, values.dtype)
    return np.concatenate([values[p.start : p.stop] for p in unit.pieces], out=out)
