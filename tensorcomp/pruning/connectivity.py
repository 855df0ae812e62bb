"""Which weights that were kept still lie on a path from the input to the output."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import CheckpointError

from tensorcomp.errors import PruningError
from tensorcomp.pruning.masking import Masks, kept_places
from tensorcomp.pruning.path_rules import FollowedPaths, drawn
from tensorcomp.pruning.preserve_state import untouched
from tensorcomp.pruning.signal_flow import doubled, first_names, flow_gradients
from tensorcomp.pruning.targets import require_values, unwrapped


def effective_masks(model: nn.Module, masks: Masks, example: Any) -> dict[str, np.ndarray]:
    """Return which kept weights are on some path of kept weights from the input to the output.

    The gradient of the outputs' sum is taken in a network whose kept weights are random numbers
    around 1 and whose biases are zero, in float64; a weight is on a path where it is not zero.
    Functions that could hide a path are replaced, see `path_rules`: activations by the identity,
    normalisations by their factors, maxima by means, and attention is open wherever no mask closes
    it. Other functions of one's own run as they are. The model is left as it was.

    Parameters
    ----------
    model : torch.nn.Module
        Parameters without a mask are all kept.
    masks : mapping of str to numpy.ndarray
        Bool, by parameter, of its shape; true where a weight is kept.
    example : torch.Tensor, or tuple or mapping of arguments
        An input, of which the shape counts; integers and booleans are used as they are, but for
        tokens in an `torch.nn.Embedding`, which may be any.

    Returns
    -------
    dict of str to numpy.ndarray
        Bool, under the names of the masks: a part of each. What is kept but false here does
        nothing, or no more than add to a bias.

    Raises
    ------
    PruningError
        If a mask does not fit, or no signal can be followed through the model.

    References
    ----------
    Vysogorets & Kempe 2023, "Connectivity matters: neural network pruning through the lens of
    effective sparsity".

    Examples
    --------
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    >>> masks = {
    ...     "0.weight": np.array([[True, True], [True, False]]),
    ...     "1.weight": np.array([[False, True]]),
    ... }
    >>> effective_masks(model, masks, torch.ones(1, 2))["0.weight"]
    array([[False, False],
           [ True, False]])
    """
    inner = unwrapped(model)
    require_values(inner)
    kept = kept_places(inner, masks)
    if not kept:
        return {}
    parameters = {name: number for number, (name, _) in enumerate(inner.named_parameters())}

    def followed(name: str, tensor: torch.Tensor) -> torch.Tensor:
        if name not in parameters:
            return tensor  # a buffer
        if "bias" in name.rpartition(".")[2] and name not in kept:
            return tensor.zero_()
        # By the number of inputs, which keeps what is no layer of torch's own from saturating.
        inputs = max(tensor[0].numel(), 1) if tensor.ndim > 1 and len(tensor) else 1
        found = drawn(tensor, -parameters[name] - 1).div_(inputs)
        return found.masked_fill_(~kept[name], 0) if name in kept else found

    with untouched(inner, weights=False), torch.inference_mode(mode=False):
        inner.eval()
        values = doubled(inner, followed)
        try:
            gradients = flow_gradients(inner, example, values, kept, FollowedPaths())
        except CheckpointError as error:
            raise PruningError(
                "paths cannot be followed through layers that run again for the gradient; turn "
                "their checkpointing off"
            ) from error
    reached = {name: (gradient != 0) & kept[name] for name, gradient in gradients.items()}
    for name, gradient in gradients.items():
        if not torch.isfinite(gradient).all():
            raise PruningError(
                f"paths through {name!r} cannot be followed: a function of the model gives no "
                "finite value for inputs of ones"
            )
    names = first_names(inner, masks)
    return {name: reached[names[name]].cpu().numpy() for name in masks}
