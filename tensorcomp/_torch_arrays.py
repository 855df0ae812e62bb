"""Torch tensors as NumPy arrays and back, without a copy where memory allows it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorcomp.dtypes import numpy_dtype

# Torch's names of safetensors' dtypes; older torch versions lack the last ones.
_TORCH_NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
    "C128": "complex128",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
}


def torch_to_numpy(name: str, tensor: Any) -> np.ndarray:
    """Return a torch tensor's values as a NumPy array; a view where it is dense and on the CPU.

    Raises
    ------
    TypeError
        If it is sparse, quantized or on the meta device, or its dtype has no safetensors equal.
    """
    import torch

    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        raise TypeError(f"tensor {name!r} has no plain values; give .to_dense() or .dequantize()")
    torch_name = str(tensor.dtype).removeprefix("torch.")
    safetensors_name = next((k for k, v in _TORCH_NAMES.items() if v == torch_name), None)
    dtype = numpy_dtype(safetensors_name) if safetensors_name else None
    if dtype is None:
        raise TypeError(f"tensor {name!r}: no safetensors dtype holds {tensor.dtype}")
    dense = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    flat = (
        dense.reshape(-1).view(torch.uint8) if dense.numel() else torch.empty(0, dtype=torch.uint8)
    )
    array: np.ndarray = flat.numpy().view(dtype).reshape(tuple(dense.shape))
    return array


def as_tensor(array: np.ndarray) -> Any:
    """Return a tensor on the CPU that shares an array's memory; of bfloat16 too."""
    import torch

    if array.dtype.name == "bfloat16":  # which torch does not know of NumPy
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def numpy_to_torch(flat: np.ndarray, dtype: str, shape: tuple[int, ...], device: Any) -> Any:
    """Return a tensor's bytes as a torch tensor; as bytes, where torch has no such dtype."""
    import torch

    tensor = torch.from_numpy(flat)
    torch_dtype = getattr(torch, _TORCH_NAMES.get(dtype, ""), None)
    if torch_dtype is not None:
        empty = torch.empty(shape, dtype=torch_dtype)
        tensor = tensor.view(torch_dtype).reshape(shape) if tensor.numel() else empty
    return tensor.to(device)
