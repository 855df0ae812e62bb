"""Tensors in memory, compressed into a file or into bytes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorcomp.checkpoints.base import Recipe, TensorInfo
from tensorcomp.checkpoints.safetensors.header import build_header
from tensorcomp.dtypes import dtype_name
from tensorcomp.io.atomic import atomic_file
from tensorcomp.io.memory_file import MemoryFile
from tensorcomp.pipeline.job import Pipeline

if TYPE_CHECKING:
    from tensorcomp.pipeline.result import Report
    from tensorcomp.planning.budgets import Budget
    from tensorcomp.planning.profiles import Profile
    from tensorcomp.planning.rules import Rule
    from tensorcomp.selection.request import Pruning


class MemorySource:
    """Arrays by name, in the order in which safetensors would store them.

    Parameters
    ----------
    tensors : mapping of str to numpy.ndarray or torch.Tensor
        Any strides and byte order; torch tensors on any device.
    metadata : mapping of str to str, optional

    Raises
    ------
    TypeError
        If a value is no array, or its dtype has no safetensors equal.
    """

    def __init__(
        self, tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None
    ) -> None:
        arrays = {name: _as_numpy(name, tensor) for name, tensor in tensors.items()}
        infos = [
            TensorInfo(name, dtype_name(array.dtype), array.shape, array.nbytes)
            for name, array in arrays.items()
        ]
        # The library's order: widest types first, so that all are aligned, then by name.
        infos.sort(key=lambda info: (-arrays[info.name].itemsize, info.name))
        self._bytes = {name: _as_bytes(array) for name, array in arrays.items()}
        self.tensors = tuple(infos)
        self.aliases: Mapping[str, str] = {}
        self._metadata = None if metadata is None else dict(metadata)
        self.nbytes = len(build_header(infos, metadata)) + sum(info.nbytes for info in infos)

    def read(self, name: str) -> np.ndarray:
        """Return a tensor's bytes, flat uint8; a view where it is contiguous."""
        return self._bytes[name]

    def recipe(self) -> Recipe:
        """Return what a safetensors file of these tensors needs besides them."""
        return Recipe("safetensors", {} if self._metadata is None else {"metadata": self._metadata})


def _as_bytes(array: np.ndarray) -> np.ndarray:
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


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


def save(
    tensors: Mapping[str, Any],
    metadata: Mapping[str, str] | None = None,
    *,
    effort: str | None = None,
    profile: str | Profile | None = None,
    budget: Budget | None = None,
    codecs: Iterable[str | Rule] = (),
    bounds: Mapping[str, Budget] | None = None,
    importance: str | os.PathLike[str] | Mapping[str, float] | None = None,
    prune: Pruning | None = None,
    threads: int | None = None,
) -> bytes:
    """Compress tensors into bytes; the counterpart of ``safetensors.numpy.save``.

    Parameters
    ----------
    tensors : mapping of str to numpy.ndarray or torch.Tensor
        Not changed.
    metadata : mapping of str to str, optional
        Kept, and restored by `decompress`.
    effort : {"balanced", "fast", "max"}, optional
        What size is worth in time.
    profile, budget, codecs, bounds, importance : optional
        What may be lost, as for `compress`; nothing by default.
    prune : Pruning, optional
        Which weights are set to zero first, as for `compress`; the tensors given stay as they are.
    threads : int, optional
        All available processors by default. The bytes do not depend on it.

    Returns
    -------
    bytes
        What `save_file` would write, for `load`.

    Raises
    ------
    TypeError
        If a value is no array, or its dtype has no safetensors equal.
    PlanError
        If the budget cannot be kept.

    Examples
    --------
    >>> import numpy as np
    >>> data = save({"weight": np.zeros((2, 3), np.float32)})
    >>> from tensorcomp import load
    >>> load(data)["weight"].shape
    (2, 3)
    """
    source = MemorySource(tensors, metadata)
    file = MemoryFile(source.nbytes)
    pipeline = Pipeline.asked(
        threads,
        prune,
        effort=effort,
        profile=profile,
        budget=budget,
        codecs=codecs,
        bounds=bounds,
        importance=importance,
    )
    pipeline.write(source, file)
    return file.to_bytes()


def save_file(
    tensors: Mapping[str, Any],
    filename: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
    *,
    effort: str | None = None,
    profile: str | Profile | None = None,
    budget: Budget | None = None,
    codecs: Iterable[str | Rule] = (),
    bounds: Mapping[str, Budget] | None = None,
    importance: str | os.PathLike[str] | Mapping[str, float] | None = None,
    prune: Pruning | None = None,
    threads: int | None = None,
) -> Report:
    """Compress tensors into a file; the counterpart of ``safetensors.*.save_file``.

    The file appears complete or not at all; one of that name is replaced.

    Parameters
    ----------
    tensors, metadata, effort, profile, budget, codecs, bounds, importance, prune, threads
        As for `save`.
    filename : str or path-like
        By convention ``*.tc.safetensors``.

    Returns
    -------
    Report
        Sizes, and the tree of each tensor.

    Raises
    ------
    TypeError
        If a value is no array, or its dtype has no safetensors equal.
    CheckpointError
        If the file cannot be written.
    """
    source = MemorySource(tensors, metadata)
    pipeline = Pipeline.asked(
        threads,
        prune,
        effort=effort,
        profile=profile,
        budget=budget,
        codecs=codecs,
        bounds=bounds,
        importance=importance,
    )
    with atomic_file(Path(filename), force=True) as file:
        return pipeline.write(source, file)
