"""Check and apply masks of a model's parameters, on their devices."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from tensorcomp.calibration.targets import require_value
from tensorcomp.errors import PruningError
from tensorcomp.selection.checks import require_mask

Masks = Mapping[str, "np.ndarray | torch.Tensor"]


def kept_places(model: nn.Module, masks: Masks) -> dict[str, torch.Tensor]:
    """Return the mask of each parameter of a model, on its device.

    It goes by the parameter's first name.

    A tied weight may have any of its names, and masks under several if they are equal.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    first = {id(parameter): name for name, parameter in model.named_parameters()}
    kept: dict[str, torch.Tensor] = {}
    for name, mask in masks.items():
        parameter = parameters.get(name)
        if parameter is None:
            raise PruningError(f"a mask is for {name!r}, which is not a parameter of the model")
        require_value(f"parameter {name!r}", parameter)
        require_mask(name, mask, tuple(parameter.shape))
        place = first[id(parameter)]
        if isinstance(mask, np.ndarray):  # a copy only where torch cannot share an array
            mask = torch.from_numpy(np.require(mask, requirements=["C", "W"]))
        found = mask.to(parameter.device)
        if place in kept and not torch.equal(kept[place], found):
            raise PruningError(f"{name!r} is a tied weight with unlike masks; give one of them")
        kept[place] = found
    return kept


def mask_parameters(model: nn.Module, masks: Masks) -> None:
    """Set the weights of a model that are not kept to zero, unseen by autograd.

    Nothing is changed if a mask does not fit.
    """
    kept = kept_places(model, masks)
    for name, parameter in model.named_parameters():
        if name in kept:
            values = parameter.data
            if values.element_size() == 1:  # torch fills no floats of 8 bits
                values = values.view(torch.int8)
            values.masked_fill_(~kept[name], 0)
