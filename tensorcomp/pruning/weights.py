"""Read the weights of a model as NumPy arrays, tensor by tensor.

Names are in the order of plain text, so that a model and its checkpoint agree on what comes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from tensorcomp._torch_arrays import torch_to_numpy

if TYPE_CHECKING:
    import torch


class ModelWeights(Mapping[str, np.ndarray]):
    """Parameters of a torch model as read-only arrays; views on the CPU.

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
