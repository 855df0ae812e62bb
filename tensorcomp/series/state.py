"""Take the state of a training in memory as files of a step; restore it.

Dictionaries, lists and plain values become JSON in the metadata of a safetensors file, and tensors
and arrays in them its tensors, named by the path to them. No pickle is written or read.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tensorcomp._formatting import shown, unique_name
from tensorcomp._threads import Workers
from tensorcomp.api.load import safe_open
from tensorcomp.checkpoints.base import Checkpoint
from tensorcomp.checkpoints.in_memory import MemoryCheckpoint
from tensorcomp.checkpoints.packing import unpack_structure
from tensorcomp.errors import PARSING_ERRORS, CheckpointError, FormatError, InputTypeError
from tensorcomp.io.memory_pages import empty_in_large_pages
from tensorcomp.series.chain import opened, search_paths
from tensorcomp.series.journal import Journal, Step
from tensorcomp.series.parts import (
    EXTRA_FILE,
    MODEL_FILE,
    OPTIMIZER_FILE,
    View,
    open_parts,
    weight_files,
)

_STATE, _KIND = "state", "$"  # the key of JSON in the metadata; what marks a value that it lacks
_PLAIN = (str, int, float, bool, type(None))
_ALIGNMENT = 64


class Snapshot:
    """Copies of tensors in memory that is kept for the next ones."""

    def __init__(self) -> None:
        self._room: Any = None

    def take(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Return copies of tensors, which are valid until the next are taken."""
        import torch

        given = {}
        for name, tensor in tensors.items():
            with contextlib.suppress(TypeError, ValueError):  # of arrays that torch has no type for
                given[name] = torch.as_tensor(tensor).detach()
            if name not in given or given[name].is_meta or given[name].layout != torch.strided:
                raise InputTypeError(f"expected a dense tensor of numbers at {shown(name)}")
        sizes = [-(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT for tensor in given.values()]
        if self._room is None or self._room.numel() < sum(sizes):
            self._room = torch.from_numpy(empty_in_large_pages(sum(sizes)))
        copies, start = {}, 0
        for (name, tensor), size in zip(given.items(), sizes, strict=True):
            room = self._room[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            copies[name] = room.copy_(tensor)
            start += size
        return copies


def state_parts(
    snapshot: Snapshot, model: Any, optimizer: Any, extra: Any
) -> dict[str, MemoryCheckpoint]:
    """Return copies of model, optimizer and other state as files of a step.

    Raises `InputTypeError` if a state holds what is neither a plain value nor a tensor.
    """
    tensors: dict[str, dict[str, Any]] = {}
    texts: dict[str, dict[str, str]] = {}
    if model is not None:
        tensors[MODEL_FILE], texts[MODEL_FILE] = dict(_weights(model)), {"format": "pt"}
    for file, value in ((OPTIMIZER_FILE, _state(optimizer)), (EXTRA_FILE, extra)):
        if value is not None:
            tensors[file] = {}
            try:
                packed = _pack(value, file.partition(".")[0], tensors[file])
            except RecursionError:
                raise InputTypeError("a state holds itself, or is nested too deep") from None
            texts[file] = {_STATE: json.dumps(packed)}
    odd = [name for name, one in tensors.get(MODEL_FILE, {}).items() if not _is_array(one)]
    if odd:
        raise InputTypeError(f"expected tensors in the model's state, got other at {shown(odd[0])}")
    if not tensors:
        raise InputTypeError("expected a model, an optimizer or extra state, got none; give one")
    copies = snapshot.take({f"{f}/{n}": t for f, own in tensors.items() for n, t in own.items()})
    return {
        file: MemoryCheckpoint({name: copies[f"{file}/{name}"] for name in own}, texts[file])
        for file, own in tensors.items()
    }


def _state(holder: Any) -> Any:
    return holder.state_dict() if hasattr(holder, "state_dict") else holder


def _weights(model: Any) -> Mapping[str, Any]:
    """Return the state of a model, or the one that is given."""
    state = _state(model)
    if not isinstance(state, Mapping):
        raise InputTypeError(f"expected a model or its state, got a {type(model).__name__}")
    return state


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or hasattr(value, "untyped_storage")


def _pack(value: Any, name: str, tensors: dict[str, Any]) -> Any:
    """Return a value as JSON; tensors in it are put among `tensors`."""
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if _is_array(value):
        name = unique_name(name, set(tensors))
        tensors[name] = value
        return {_KIND: "array" if isinstance(value, np.ndarray) else "tensor", "name": name}
    if isinstance(value, bytes):
        return {_KIND: "bytes", "hex": value.hex()}
    if isinstance(value, Mapping):
        items = [
            [_pack(k, name, tensors), _pack(v, f"{name}.{k}", tensors)] for k, v in value.items()
        ]
        return {_KIND: "dict", "items": items}
    if isinstance(value, (list, tuple)):
        items = [_pack(item, f"{name}.{n}", tensors) for n, item in enumerate(value)]
        return {_KIND: "tuple", "items": items} if isinstance(value, tuple) else items
    if not isinstance(value, _PLAIN):
        kind = type(value).__name__
        raise InputTypeError(
            f"expected plain values and tensors in {shown(name)}, got a {kind}; give its state_dict"
        )
    return value


def _unpack(value: Any, tensors: Mapping[str, Any]) -> Any:
    """Return the value that `_pack` was given."""
    if isinstance(value, list):
        return [_unpack(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value[_KIND]
    if kind in ("array", "tensor"):
        found = tensors[value["name"]]
        return found.numpy() if kind == "array" else found
    if kind == "bytes":
        return bytes.fromhex(value["hex"])
    items = [_unpack(item, tensors) for item in value["items"]]
    return dict(items) if kind == "dict" else tuple(items)


def unpacked(part: Checkpoint, tensors: Mapping[str, Any]) -> Any:
    """Return the state that a file of a step holds, given the tensors."""
    try:
        return _unpack(json.loads(unpack_structure(part.template())["metadata"][_STATE]), tensors)
    except PARSING_ERRORS as error:
        raise FormatError(f"its state is damaged ({error!r})") from error


def step_tensors(
    folder: Path,
    journal: Journal,
    step: Step,
    *,
    only_weights: bool = False,
    threads: int | None = None,
) -> tuple[dict[str, Any], dict[str, View]]:
    """Return the tensors of a step, and its files; find its chain first."""
    path, search = folder / step.file, search_paths(folder, journal, step)
    with opened(folder, journal, step) as file:
        parts = open_parts(file)
        wanted = weight_files(parts) if only_weights else parts
        names = [info.name for part in wanted.values() for _, info in part.places.values()]
    with safe_open(path, "pt", bases=search) as opened_file, Workers(threads) as workers:
        return dict(workers.in_order(opened_file.get_tensor, names)), parts


def restore_state(
    folder: Path,
    journal: Journal,
    step: Step,
    model: Any,
    optimizer: Any,
    threads: int | None = None,
) -> Any:
    """Load a step into a model and an optimizer; return what is extra."""
    tensors, parts = step_tensors(folder, journal, step, threads=threads)
    if optimizer is not None and OPTIMIZER_FILE not in parts:
        raise CheckpointError(
            f"step {step.step} has no optimizer's state; restore the model alone",
            path=folder / step.file,
        )
    extra = unpacked(parts[EXTRA_FILE], tensors) if EXTRA_FILE in parts else None
    weights = {}
    if model is not None:
        if MODEL_FILE not in parts:
            raise CheckpointError(f"step {step.step} has no model", path=folder / step.file)
        weights = {info.name: tensors[info.name] for info in parts[MODEL_FILE].tensors}
        check_model(model, weights)
    if optimizer is not None:
        try:
            optimizer.load_state_dict(unpacked(parts[OPTIMIZER_FILE], tensors))
        except PARSING_ERRORS as error:
            raise CheckpointError(f"is of another optimizer: {error}", path=folder) from error
    if model is not None:
        copy_into(model, weights)
    return extra


def check_model(model: Any, tensors: Mapping[str, Any]) -> None:
    """Require that weights have the names, shapes and dtypes of a model's."""
    own = _weights(model)
    odd = sorted(own.keys() ^ tensors.keys())
    if odd:
        where = "model" if odd[0] in own else "step"
        raise CheckpointError(
            f"is in the {where} only: give the model of the series", tensor=odd[0]
        )
    for name, tensor in own.items():
        new = tensors[name]
        if tensor.shape != new.shape or tensor.dtype != new.dtype:
            raise CheckpointError(
                f"expected {new.dtype} {list(new.shape)} as in the step, got {tensor.dtype} "
                f"{list(tensor.shape)}; give the model of the series",
                tensor=name,
            )


def copy_into(model: Any, tensors: Mapping[str, Any]) -> None:
    """Copy weights into a model."""
    import torch

    with torch.no_grad():
        for name, tensor in _state(model).items():
            tensor.copy_(tensors[name])
