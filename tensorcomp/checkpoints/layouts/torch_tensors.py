"""Describe torch tensors: dtype, plain or not, strides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.dtypes import torch_dtype_name
from tensorcomp.errors import CheckpointError

if TYPE_CHECKING:
    import torch


def require_torch(path: Path) -> None:
    """Require that torch is installed."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise CheckpointError(
            "a torch file needs torch; run `pip install 'tensorcomp[torch]'`", path=path
        ) from error


def refusal(tensor: torch.Tensor) -> str | None:
    """Explain why a tensor's values are not plain bytes; None if they are."""
    import torch

    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        kind = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
        return f"a tensor of the subclass {kind}; save the plain tensors that it is made of instead"
    if tensor.is_nested:
        return "a nested tensor; save its unbind() as a list instead"
    if tensor.layout != torch.strided:
        return f"a tensor of layout {tensor.layout}; save tensor.to_dense() instead"
    if tensor.is_quantized:
        return "a quantized tensor; save its int_repr(), scale and zero point instead"
    if tensor.device.type == "meta":
        return "a meta tensor, which has no values; save it from a model whose weights are loaded"
    return None


def tensor_info(name: str, tensor: torch.Tensor) -> TensorInfo:
    """Describe a tensor; as bytes if safetensors lacks its dtype."""
    nbytes = tensor.numel() * tensor.element_size()
    dtype = torch_dtype_name(tensor.dtype)
    if dtype is None:
        return TensorInfo(name, "U8", (nbytes,), nbytes)
    return TensorInfo(name, dtype, tuple(tensor.shape), nbytes)


def dtype_text(tensor: torch.Tensor) -> str:
    """Return the name of a tensor's dtype without ``torch.``."""
    return str(tensor.dtype).removeprefix("torch.")


def is_dense(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Return whether a tensor is contiguous but for a permutation of its axes."""
    expected = 1
    for step, size in sorted((st, s) for st, s in zip(stride, shape, strict=True) if s > 1):
        if step != expected:
            return False
        expected *= size
    return True


def may_overlap(tensor: torch.Tensor) -> bool:
    """Return whether two elements may share an address, as in an expanded tensor."""
    reach = 0
    strides = zip(tensor.stride(), tensor.shape, strict=True)
    for step, size in sorted((step, size) for step, size in strides if size > 1):
        if step <= reach:
            return True
        reach += step * (size - 1)
    return False
