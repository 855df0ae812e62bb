"""Read the weights of a model as NumPy arrays, tensor by tensor.

Names are in the order of plain text, so that a model and its checkpoint agree on what comes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tensorcomp._torch_arrays import torch_to_numpy
from tensorcomp.selection.streaming_scores import LazyArrays

if TYPE_CHECKING:
    import torch


class ModelWeights(LazyArrays):
    """Parameters of a torch model as read-only arrays; views on the CPU.

    Parameters
    ----------
    parameters : mapping of str to torch.nn.Parameter
    """

    def __init__(self, parameters: Mapping[str, torch.Tensor]) -> None:
        super().__init__({name: partial(_array, name, parameters[name]) for name in parameters})


def _array(name: str, parameter: torch.Tensor) -> np.ndarray:
    array = torch_to_numpy(name, parameter)
    array.flags.writeable = False
    return array
