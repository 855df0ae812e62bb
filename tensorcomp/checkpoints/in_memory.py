"""Read arrays in memory as a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorcomp.checkpoints.base import Checkpoint, SourceTemplate, TensorInfo
from tensorcomp.checkpoints.safetensors.header import build_header
from tensorcomp.codecs.bit_views import readable
from tensorcomp.dtypes import dtype_name
from tensorcomp.errors import InputTypeError


class MemoryCheckpoint(Checkpoint):
    """Arrays by name, in the order in which safetensors would store them.

    Parameters
    ----------
    tensors : mapping of str to numpy.ndarray or torch.Tensor
        Any strides and byte order; torch tensors on any device.
    metadata : mapping of str to str, optional

    Raises
    ------
    InputTypeError
        If a value is not an array, or its dtype has no safetensors equal.
    """

    def __init__(
        self, tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None
    ) -> None:
        _require_text(tensors, metadata or {})
        described = [_described(name, tensor) for name, tensor in tensors.items()]
        arrays = {info.name: array for info, array in described}
        infos = [info for info, _ in described]
        # The library's order: widest types first, so that all are aligned, then by name.
        infos.sort(key=lambda info: (-arrays[info.name].itemsize, info.name))
        self._arrays = {name: readable(array) for name, array in arrays.items()}
        self.tensors = tuple(infos)
        self.metadata = None if metadata is None else dict(metadata)
        self.nbytes = len(build_header(infos, metadata)) + sum(info.nbytes for info in infos)

    def read(self, name: str) -> np.ndarray:
        """Return a tensor's bytes, flat uint8; a view where it is contiguous."""
        return self._arrays[name].reshape(-1).view(np.uint8)

    def template(self) -> SourceTemplate:
        """Return what a safetensors file of these tensors needs besides them."""
        structure = {} if self.metadata is None else {"metadata": self.metadata}
        return SourceTemplate(self.kind, structure)


def _require_text(tensors: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
    """Require that names and metadata are strings."""
    if not isinstance(metadata, Mapping):
        raise InputTypeError(f"expected metadata to map strings to strings, got {metadata!r}")
    odd = [text for text in (*tensors, *metadata, *metadata.values()) if not isinstance(text, str)]
    if odd:
        raise InputTypeError(f"expected names and metadata to be strings, got {odd[0]!r}")


def _described(name: str, tensor: Any) -> tuple[TensorInfo, np.ndarray]:
    """Return what describes a tensor, and its values."""
    if type(tensor).__module__.partition(".")[0] == "torch" or hasattr(tensor, "untyped_storage"):
        from tensorcomp._torch_arrays import torch_entry

        dtype, shape, array = torch_entry(name, tensor)
        return TensorInfo(name, dtype, shape, array.nbytes), array
    if not isinstance(tensor, (np.ndarray, np.generic)):
        kind = type(tensor).__name__
        raise InputTypeError(f"tensor {name!r} is a {kind}; give NumPy arrays or torch tensors")
    array = np.asarray(tensor)
    try:
        dtype = dtype_name(array.dtype)
    except TypeError as error:
        raise InputTypeError(f"tensor {name!r}: {error}") from error
    return TensorInfo(name, dtype, array.shape, array.nbytes), array
