"""The weights of a model or a checkpoint as read-only NumPy arrays, tensor by tensor.

Names are in the order of plain text, so that a model and its checkpoint agree on what comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from tensorcomp.codecs.rounding import is_float
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.errors import PruningError
from tensorcomp.torch_arrays import torch_to_numpy

if TYPE_CHECKING:
    import torch

    from tensorcomp.checkpoints.checkpoint import Source


class ModelWeights(Mapping[str, np.ndarray]):
    """Parameters of a torch model; a view of those on the CPU, a copy each time of others.

    Parameters
    ----------
    parameters : mapping of str to torch.nn.Parameter
    """

    def __init__(self, parameters: Mapping[str, torch.Tensor]) -> None:
        self._parameters = {name: parameters[name] for name in sorted(parameters)}

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a tensor's weights."""
        array = torch_to_numpy(name, self._parameters[name])
        array.flags.writeable = False
        return array

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._parameters)

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self._parameters)


class SourceWeights(Mapping[str, np.ndarray]):
    """Float tensors of a checkpoint, read when they are asked for.

    Parameters
    ----------
    source : Source
    names : iterable of str
        Those that count.

    Raises
    ------
    PruningError
        If one of them holds no floats.
    """

    def __init__(self, source: Source, names: Iterable[str]) -> None:
        self._source = source
        wanted = set(names)
        infos = {info.name: info for info in source.tensors if info.name in wanted}
        self._infos = {name: infos[name] for name in sorted(infos)}
        for name, info in self._infos.items():
            dtype = numpy_dtype(info.dtype)
            if dtype is None or not is_float(dtype) or info.dtype == "F8_E8M0":  # has no zero
                raise PruningError(f"tensor {name!r} is {info.dtype}; only floats can be pruned")

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a tensor's weights."""
        info = self._infos[name]
        dtype = numpy_dtype(info.dtype)
        assert dtype is not None
        return self._source.read(name).view(dtype).reshape(info.shape)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._infos)

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self._infos)
