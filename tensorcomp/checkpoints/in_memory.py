"""Read arrays in memory as a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorcomp.checkpoints.base import Checkpoint, SourceTemplate, TensorInfo
from tensorcomp.checkpoints.safetensors.header import build_header
from tensorcomp.codecs.bit_views import readable
from tensorcomp.dtypes import dtype_name


class MemoryCheckpoint(Checkpoint):
    """Arrays by name, in the order in which safetensors would store them.

    Parameters
    ----------
    tensors : mapping of str to numpy.ndarray or torch.Tensor
        Any strides and byte order; torch tensors on any device.
    metadata : mapping of str to str, optional

    Raises
    ------
    TypeError
        If a value is not an array, or its dtype has no safetensors equal.
    """

    def __init__(
        self, tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None
    ) -> None:
        arrays = {name: _as_numpy(name, tensor) for name, tensor in tensors.items()}
        infos = [TensorInfo(n, dtype_name(a.dtype), a.shape, a.nbytes) for n, a in arrays.items()]
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


def _as_numpy(name: str, tensor: Any) -> np.ndarray:
    if isinstance(tensor, np.ndarray):
        return tensor
    if isinstance(tensor, np.generic):
        return np.asarray(tensor)
    if type(tensor).__module__.partition(".")[0] == "torch" or hasattr(tensor, "untyped_storage"):
        from tensorcomp._torch_arrays import torch_to_numpy

        return torch_to_numpy(name, tensor)
    raise TypeError(
        f"tensor {name!r} is a {type(tensor).__name__}; give NumPy arrays or torch tensors"
    )
