"""Store state dicts as flat mappings of tensors or distributed checkpoints."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from tensorcomp.errors import PARSING_ERRORS, CheckpointError, GradientError
from tensorcomp.io.files import reading

_ABOUT = "about"


def to_tensors(state: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return a state dict as a flat mapping of tensors.

    Parameters
    ----------
    state : mapping
        From `GradientCompression.state_dict`.

    Returns
    -------
    dict of str to torch.Tensor
        ``"states/NAME/FIELD"`` and ``"means/NAME/FIELD"``, and ``"about"``: all else, as JSON in
        bytes (uint8).

    Examples
    --------
    ``tensorcomp.save_file(to_tensors(compression.state_dict()), "gradients.tc.safetensors")``
    """
    tensors: dict[str, torch.Tensor] = {}
    about = dict(state)
    for key in ("states", "means"):
        about[key] = {name: {} for name in state[key]}
        for name, fields in state[key].items():
            for field, item in fields.items():
                if isinstance(item, torch.Tensor):
                    tensors[f"{key}/{name}/{field}"] = item
                else:
                    about[key][name][field] = item
    tensors[_ABOUT] = torch.tensor([*json.dumps(about).encode()], dtype=torch.uint8)
    return tensors


def from_tensors(tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Return the state dict that `to_tensors` was given.

    Raises
    ------
    GradientError
        If the tensors are others.
    """
    try:
        state: dict[str, Any] = json.loads(bytes(tensors[_ABOUT].tolist()))
        for key, tensor in tensors.items():
            if key != _ABOUT:
                kind, _, rest = key.partition("/")
                name, _, field = rest.rpartition("/")
                state[kind][name][field] = tensor
    except PARSING_ERRORS as error:
        raise GradientError("these tensors hold no state of gradient compression") from error
    return state


def save_distributed(state: Mapping[str, Any], path: str) -> None:
    """Save all ranks' state dicts by ``torch.distributed.checkpoint`` together.

    A save of before is replaced at one instant, when all ranks have written.

    Parameters
    ----------
    state : mapping
        From `GradientCompression.state_dict`.
    path : str
        A folder that all ranks see.

    Raises
    ------
    CheckpointError
        If a rank cannot write.
    """
    from torch.distributed.checkpoint.state_dict_saver import save

    from tensorcomp.gradients.ddp.atomic_writer import AtomicWriter

    prefix = _prefix(state.get("mode"), state.get("rank", 0))
    tensors = {prefix + key: value for key, value in to_tensors(state).items()}
    with _located(path), contextlib.ExitStack() as alone:
        save(tensors, storage_writer=AtomicWriter(path, alone))


def load_distributed(path: str, rank: int) -> dict[str, Any]:
    """Return what a rank, or for means every rank, saved by `save_distributed`.

    Parameters
    ----------
    path : str
    rank : int

    Raises
    ------
    CheckpointError
        If the folder holds no checkpoint, or a damaged one.
    GradientError
        If it holds no state of this rank.
    """
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import load

    with reading(Path(path)):
        known: dict[str, Any] = FileSystemReader(path).read_metadata().state_dict_metadata
    for prefix in (_prefix("mean", 0), _prefix("exact", rank)):
        tensors = {
            key: torch.empty(tuple(about.size), dtype=about.properties.dtype)
            for key, about in known.items()
            if key.startswith(prefix) and hasattr(about, "size")
        }
        if tensors:
            with _located(path):
                load(tensors, checkpoint_id=path)
            return from_tensors({key[len(prefix) :]: value for key, value in tensors.items()})
    raise GradientError(
        f"{path} holds no state of rank {rank}; states of another number of ranks are loaded if "
        'they were saved with mode="mean"'
    )


@contextlib.contextmanager
def _located(path: str) -> Iterator[None]:
    """Raise `CheckpointError` for a `CheckpointException` of torch."""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        yield
    except CheckpointException as error:
        rank, (cause, _) = next(iter(error.failures.items()))
        while cause.__context__ is not None:  # torch cannot end a file that it could not write
            cause = cause.__context__
        message = f"rank {rank} failed by {type(cause).__name__}: {cause}"
        raise CheckpointError(message, path=path) from error


def _prefix(mode: Any, rank: int) -> str:
    return "mean/" if mode == "mean" else f"rank {rank}/"
