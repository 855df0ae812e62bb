"""Give tensors the form of NumPy or torch, and take the indices of each."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from tensorcomp.dtypes import holds_floats, numpy_dtype
from tensorcomp.errors import FormatError, InputTypeError, OptionError, SliceError

Layout: TypeAlias = tuple[np.dtype, tuple[int, ...]]
Basic: TypeAlias = int | slice


class Framework(ABC):
    """Library whose tensors are returned.

    Attributes
    ----------
    device : str or torch.device
        Where they are.
    shares_files : bool
        Whether tensors of an ordinary file are views of a private mapping of it.
    """

    device: Any
    shares_files = False

    @abstractmethod
    def layout(self, dtype: str, shape: tuple[int, ...], nbytes: int) -> Layout:
        """Return dtype and shape in NumPy; flat bytes if the library lacks the dtype."""

    @abstractmethod
    def dtype(self, name: str) -> Any:
        """Return the library's dtype of safetensors' name; uint8 if it lacks it."""

    @abstractmethod
    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return a shape, of the library's type."""

    @abstractmethod
    def holds_floats(self, name: str) -> bool:
        """Return whether safetensors' dtype is one of floats here."""

    @abstractmethod
    def tensor(self, memory: np.ndarray, dtype: str, layout: Layout) -> Any:
        """Return flat bytes as a tensor, of their memory where the device is the CPU."""

    @abstractmethod
    def indices(self, index: Any, shape: tuple[int, ...]) -> list[Basic] | None:
        """Return an index of each axis; None if the library alone can apply it.

        Raises what safetensors raises for an index that it refuses.
        """


class NumpyFramework(Framework):
    """NumPy, with the dtypes of ml_dtypes."""

    device = "cpu"

    def layout(self, dtype: str, shape: tuple[int, ...], nbytes: int) -> Layout:
        """Return the tensor's own, or flat bytes."""
        known = numpy_dtype(dtype)
        return (np.dtype(np.uint8), (nbytes,)) if known is None else (known, shape)

    def dtype(self, name: str) -> np.dtype:
        """Return the NumPy dtype."""
        return numpy_dtype(name) or np.dtype(np.uint8)

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape."""
        return shape

    def holds_floats(self, name: str) -> bool:
        """Return whether the NumPy dtype is one of floats."""
        return holds_floats(self.dtype(name))

    def tensor(self, memory: np.ndarray, dtype: str, layout: Layout) -> np.ndarray:
        """Return an array of the bytes."""
        return array_in(memory, layout)

    def indices(self, index: Any, shape: tuple[int, ...]) -> list[Basic]:
        """Return the index of each axis: integers, and slices that end within it."""
        if isinstance(index, list):
            if index:
                raise InputTypeError("Non empty lists are not implemented")
            index = slice(0, 0)
        items = index if isinstance(index, tuple) else (index,)
        if sum(item is Ellipsis for item in items) > 1:
            raise SliceError("Only one ellipsis (...) is allowed in slice index")
        found = [
            item if isinstance(item, slice) else _integer(item, axis, shape)
            for axis, item in enumerate(_expanded(items, len(shape)))
        ]
        if len(found) > len(shape):
            _refuse(found, shape, "more slicing indexes than dimensions in tensor")
        for axis, (item, size) in enumerate(zip(found, shape, strict=False)):
            if (beyond := _first_beyond(item, size)) is not None:
                fault = f"index {beyond} out of bounds for tensor dimension #{axis} of size {size}"
                _refuse(found, shape, fault)
        return found + [slice(None)] * (len(shape) - len(found))


class TorchFramework(Framework):
    """Torch, on a device.

    Parameters
    ----------
    device : str, int, torch.device or None

    Raises
    ------
    OptionError
        If torch knows no such device.
    """

    shares_files = True

    def __init__(self, device: Any) -> None:
        import torch

        try:
            self.device = torch.device("cpu" if device is None else device)
        except (RuntimeError, TypeError) as error:
            raise OptionError(f"device {device!r} is invalid: {error}") from error

    def layout(self, dtype: str, shape: tuple[int, ...], nbytes: int) -> Layout:
        """Return the tensor's own, bytes of pairs, or flat bytes."""
        from tensorcomp._torch_arrays import torch_layout

        return torch_layout(dtype, shape, nbytes)

    def dtype(self, name: str) -> Any:
        """Return the torch dtype."""
        import torch

        from tensorcomp._torch_arrays import known_dtype

        return known_dtype(name) or torch.uint8

    def shape(self, shape: tuple[int, ...]) -> Any:
        """Return a ``torch.Size``."""
        import torch

        return torch.Size(shape)

    def holds_floats(self, name: str) -> bool:
        """Return whether the torch dtype is one of floats."""
        return bool(self.dtype(name).is_floating_point)

    def tensor(self, memory: np.ndarray, dtype: str, layout: Layout) -> Any:
        """Return a tensor of the bytes, or a copy on the device."""
        from tensorcomp._torch_arrays import bytes_to_torch

        return bytes_to_torch(memory, dtype, layout[1], self.device)

    def indices(self, index: Any, shape: tuple[int, ...]) -> list[Basic] | None:
        """Return the index of each axis, if torch takes it and it has only such."""
        import torch

        torch.empty(()).expand(shape)[index]  # which raises what torch has against it
        items = index if isinstance(index, tuple) else (index,)
        ellipses = sum(item is Ellipsis for item in items)
        if ellipses > 1 or not all(map(_is_basic, items)):
            return None
        found: list[Basic] = [
            item if isinstance(item, slice) else operator.index(item)
            for item in _expanded(items, len(shape))
        ]
        return found + [slice(None)] * (len(shape) - len(found))


def framework_of(name: str, device: Any) -> Framework:
    """Return a framework by safetensors' names of it.

    Raises
    ------
    OptionError
        If there is none of that name, or it does not know the device.
    """
    if name in ("pt", "torch", "pytorch"):
        return TorchFramework(device)
    if name not in ("np", "numpy"):
        raise OptionError(f"expected framework to be 'np' or 'pt', got {name!r}")
    if device is not None and str(device) != "cpu":
        raise OptionError(f"expected device to be 'cpu' for NumPy, got {device!r}; give 'pt'")
    return NumpyFramework()


def array_in(memory: np.ndarray, layout: Layout) -> np.ndarray:
    """Return flat bytes as an array of a layout."""
    dtype, shape = layout
    try:
        return np.ndarray(shape, dtype, memory)
    except ValueError as error:
        raise FormatError(f"NumPy has no array of {len(shape)} axes: {error}") from error


def _expanded(items: Sequence[Any], axes: int) -> list[Any]:
    """Return the items with slices of whole axes in place of an ellipsis."""
    whole = [slice(None)] * max(0, axes - len(items) + 1)
    return [one for item in items for one in (whole if item is Ellipsis else [item])]


def _is_basic(item: Any) -> bool:
    integer = isinstance(item, (int, np.integer)) and not isinstance(item, bool)
    return integer or isinstance(item, slice) or item is Ellipsis


def _integer(item: Any, axis: int, shape: tuple[int, ...]) -> int:
    try:
        found = int(operator.index(item))  # True is 1
    except TypeError:
        raise InputTypeError(
            f"Unsupported slice index at position {axis}: expected slice, int, or ellipsis"
        ) from None
    if axis < len(shape) and found < -shape[axis]:
        raise SliceError(f"Invalid index {found} for dimension {axis} of size {shape[axis]}")
    return found


def _first_beyond(item: Basic, size: int) -> int | None:
    """Return an element that an index asks for and the axis lacks, if any."""
    if isinstance(item, int):
        return item if item >= size else None
    if item.step is not None and operator.index(item.step) <= 0:
        raise OptionError(f"Slice step must be a positive integer, got {item.step}")
    start, stop = (0 if at is None else operator.index(at) for at in (item.start, item.stop))
    if max(start, stop) > size:
        return start if start >= size else stop - 1
    return min(start, stop) if min(start, stop) < -size else None


def _refuse(found: Sequence[Basic], shape: tuple[int, ...], fault: str) -> None:
    texts = (
        str(item)
        if isinstance(item, int)
        else ":".join("" if at is None else str(at) for at in (item.start, item.stop))
        + ("" if item.step in (None, 1) else f":{item.step}")
        for item in found
    )
    raise SliceError(f"Error during slicing [{', '.join(texts)}] with shape {list(shape)}: {fault}")
