"""States on the host and on a device."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np
import torch

from tensorcomp._torch_arrays import as_tensor, torch_to_numpy
from tensorcomp.gradients.base import State

_S = TypeVar("_S", bound=State)


def to_device(state: _S, device: torch.device | str) -> _S:
    """Return a state whose arrays are tensors on a device."""
    where = torch.device(device)

    def moved(value: Any) -> Any:
        return as_tensor(value).to(where) if isinstance(value, np.ndarray) else value

    return _mapped(state, moved)


def to_host(state: _S) -> _S:
    """Return a state whose tensors are arrays, for `states` and for checkpoints."""

    def moved(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return torch_to_numpy("a state", value).copy()

    return _mapped(state, moved)


def _mapped(state: _S, change: Any) -> _S:
    changes: dict[str, Any] = {}
    for field in fields(state):
        value = getattr(state, field.name)
        changes[field.name] = _mapped(value, change) if isinstance(value, State) else change(value)
    return replace(state, **changes)
