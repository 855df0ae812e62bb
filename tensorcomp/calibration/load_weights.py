"""Load the weights of a checkpoint file into a model, strictly."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from tensorcomp._formatting import listed, shown
from tensorcomp._names import match_names
from tensorcomp._torch_arrays import numpy_to_torch
from tensorcomp.calibration.targets import unwrapped
from tensorcomp.container.reader import open_any
from tensorcomp.errors import CheckpointError, located
from tensorcomp.io.locations import location
from tensorcomp.io.spool import local_copy

_NESTS = ("state_dict", "model_state_dict", "model")  # where training checkpoints keep the weights


def load_weights(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Set a model's parameters and buffers to those of a checkpoint file.

    Parameters
    ----------
    model : torch.nn.Module
    path : str or path-like
        A safetensors file, compressed or not, a torch file or an ``.npz`` archive, with exactly the
        tensors of the model's state dict, but for what wrappers put into names, and one prefix such
        as ``model.`` before all. Of tied tensors one is enough. A torch file may keep the
        state dict as ``state_dict``, ``model_state_dict`` or ``model`` among other things.

    Raises
    ------
    CheckpointError, FormatError
        If the file cannot be read, or a tensor is missing, not the model's, or of another shape;
        the model is as it was then.
    """
    with local_copy(location(path)) as file:
        _load(unwrapped(model), file)


def _load(model: nn.Module, path: Path) -> None:
    """Put a local file's tensors into a model without wrappers."""
    found = _tensors(path)
    state = model.state_dict(keep_vars=True)
    wanted = {name: item for name, item in state.items() if isinstance(item, torch.Tensor)}
    with located(path=path):
        pairs = match_names({name: (name,) for name in wanted}, found)
    given = {id(wanted[name]) for name in pairs}
    missing = [name for name, tensor in wanted.items() if id(tensor) not in given]
    unknown = sorted(found.keys() - pairs.values())
    problems = [f"lacks {listed(missing)}"] if missing else []
    problems += [f"has {listed(unknown)} besides"] if unknown else []
    if problems:
        raise CheckpointError(f"{path}: does not fit the model: it {' and '.join(problems)}")
    for name, tensor in ((name, found[other]) for name, other in pairs.items()):
        if tensor.shape != wanted[name].shape:
            raise CheckpointError(
                f"{path}: does not fit the model: {shown(name)} has the shape "
                f"{list(tensor.shape)}, the model's {list(wanted[name].shape)}"
            )
    model.load_state_dict({name: found[other] for name, other in pairs.items()}, strict=False)


def _tensors(path: Path) -> dict[str, torch.Tensor]:
    with open_any(path) as checkpoint:
        if checkpoint.kind == "torch":
            return _state_dict(path)
        # Copies: the file is closed before they are used.
        return {
            info.name: numpy_to_torch(
                checkpoint.read(info.name).copy(), info.dtype, info.shape, "cpu"
            )
            for info in checkpoint.arrays
        }


def _state_dict(path: Path) -> dict[str, torch.Tensor]:
    """Return the state dict of a torch file that could be opened."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    candidates = [loaded]
    if isinstance(loaded, Mapping):
        candidates += [loaded[key] for key in _NESTS if key in loaded]
    for candidate in candidates:
        if isinstance(candidate, Mapping) and candidate:
            tensors = {key: value for key, value in candidate.items() if torch.is_tensor(value)}
            if len(tensors) == len(candidate):
                return tensors
    nests = ", ".join(_NESTS)
    raise CheckpointError(f"{path}: holds no state dict of tensors, nor has one as {nests}")
