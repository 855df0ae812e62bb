"""Convert between torch tensors and NumPy arrays, without a copy if possible."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorcomp.dtypes import dtype_name, numpy_dtype, torch_dtype, torch_dtype_name
from tensorcomp.errors import InputTypeError

_PAIRS = "float4_e2m1fn_x2"  # two floats of safetensors' F4 a byte, which only torch has


def torch_to_numpy(name: str, tensor: Any) -> np.ndarray:
    """Return a torch tensor as a NumPy array; a view if dense and on the CPU.

    Raises
    ------
    InputTypeError
        If it is sparse, quantized or on the meta device, or its dtype has no safetensors equal.
    """
    import torch

    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        raise InputTypeError(
            f"tensor {name!r} has no plain values; give .to_dense() or .dequantize()"
        )
    dtype = numpy_dtype(torch_dtype_name(tensor.dtype) or "")
    if dtype is None:
        raise InputTypeError(f"tensor {name!r}: no safetensors dtype holds {tensor.dtype}")
    dense = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return byte_view(dense).view(dtype).reshape(tuple(dense.shape))


def torch_entry(name: str, tensor: Any) -> tuple[str, tuple[int, ...], np.ndarray]:
    """Return safetensors' dtype and shape of a torch tensor, and its values.

    Raises as `torch_to_numpy` does.
    """
    import torch

    if tensor.dtype == getattr(torch, _PAIRS, None) and tensor.ndim:
        array = torch_to_numpy(name, tensor.view(torch.uint8))
        return "F4", (*array.shape[:-1], 2 * array.shape[-1]), array
    array = torch_to_numpy(name, tensor)
    return dtype_name(array.dtype), array.shape, array


def byte_view(tensor: Any) -> np.ndarray:
    """Return the memory of a contiguous CPU tensor as flat uint8."""
    import torch

    size = tensor.element_size()
    begin, count = tensor.storage_offset() * size, tensor.numel() * size
    flat = torch.empty(0, dtype=torch.uint8)
    flat.set_(tensor.untyped_storage(), begin, (count,), (1,))
    array: np.ndarray = flat.numpy()
    return array


def as_tensor(array: np.ndarray) -> Any:
    """Return a CPU tensor that shares an array's memory, bfloat16 included."""
    import torch

    if array.dtype.name == "bfloat16":  # which torch does not know of NumPy
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def numpy_to_torch(flat: np.ndarray, dtype: str, shape: tuple[int, ...], device: Any) -> Any:
    """Return bytes as a torch tensor; as uint8 where torch lacks the dtype."""
    return bytes_to_torch(flat, dtype, torch_layout(dtype, shape, flat.nbytes)[1], device)


def bytes_to_torch(flat: np.ndarray, dtype: str, shape: tuple[int, ...], device: Any) -> Any:
    """Return bytes as a torch tensor of the shape of a `torch_layout`."""
    import torch

    known = known_dtype(dtype) or torch.uint8
    if not flat.size:
        return torch.empty(shape, dtype=known, device=device)
    return torch.from_numpy(flat).view(known).reshape(shape).to(device)


def known_dtype(dtype: str) -> Any:
    """Return the torch dtype of a safetensors dtype, None if torch lacks it."""
    import torch

    return getattr(torch, _PAIRS, None) if dtype == "F4" else torch_dtype(dtype)


def torch_layout(
    dtype: str, shape: tuple[int, ...], nbytes: int
) -> tuple[np.dtype, tuple[int, ...]]:
    """Return NumPy's dtype and the shape of a torch tensor's memory.

    Pairs of 4-bit floats are half as many along the last axis. Where torch lacks the dtype, flat
    bytes.
    """
    known, found = known_dtype(dtype), numpy_dtype(dtype)
    if known is not None and found is not None:
        return found, shape
    if known is not None and shape and shape[-1] % 2 == 0:
        return np.dtype(np.uint8), (*shape[:-1], shape[-1] // 2)
    return np.dtype(np.uint8), (nbytes,)
