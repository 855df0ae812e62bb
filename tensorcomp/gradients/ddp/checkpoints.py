"""States as plain tensors and numbers: what a rank saves, and how it goes on from there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import torch

from tensorcomp._torch_arrays import as_tensor, torch_to_numpy
from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Compressor, State
from tensorcomp.gradients.ddp.communicator import Link
from tensorcomp.gradients.ddp.partition import OWNED, share_out
from tensorcomp.gradients.ddp.rank_check import check_alike
from tensorcomp.gradients.ddp.state_store import Saved
from tensorcomp.gradients.labels import label, short
from tensorcomp.gradients.payload.states import flatten

_ABOUT = "about"
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

Values = dict[str, dict[str, Any]]  # by parameter, then by field: arrays and numbers


def values_of(states: Mapping[str, State | Saved]) -> tuple[Values, Values]:
    """Return what states hold: those of parameters, and those of means that this rank owns."""
    parameters: Values = {}
    means: Values = {}
    for name, state in states.items():
        values = dict(state.values) if isinstance(state, Saved) else flatten(state)
        if name.startswith(OWNED):
            means[name.removeprefix(OWNED)] = values
        elif values:
            parameters[name] = values
    return parameters, means


def averaged(parameters: Values, means: Values, sizes: Mapping[str, int], link: Link) -> None:
    """Replace what ranks hold by what all of them together hold; all must call this together.

    States of parameters become their mean over the ranks. Of the means' states, of which each rank
    holds its own part, all parts are put together; numbers, which belong to a part, are left out.

    Parameters
    ----------
    parameters, means : dict
        Changed.
    sizes : mapping of str to int
        Elements of every parameter.
    link : Link
    """
    ownership = share_out(sizes, link.world)
    fields = _fields_of_means(means, link)
    held = dict(means)
    means.clear()
    for name in sizes:
        for field, dtype in fields.get(name, {}).items():
            start, stop = ownership.part(name, link.rank)
            whole = np.zeros(sizes[name], np.dtype(dtype))
            if stop > start and field in held.get(name, {}):
                whole[start:stop] = held[name][field].reshape(-1)
            whole *= link.world  # their mean is what the owner holds
            means.setdefault(name, {})[field] = whole
    for values in (parameters, means):
        _average(values, link)


def _fields_of_means(means: Values, link: Link) -> dict[str, dict[str, str]]:
    """Return the float arrays that some rank holds of each parameter's mean, and their dtypes."""
    own = {
        name: {
            field: "float32" if value.dtype == _BFLOAT16 else value.dtype.str
            for field, value in fields.items()
            if isinstance(value, np.ndarray) and _is_float(value)
        }
        for name, fields in means.items()
    }
    found: dict[str, dict[str, str]] = {}
    for row in link.all_gather_bytes(json.dumps(own).encode(), "fields of means"):
        for name, fields in json.loads(row.tobytes()).items():
            found.setdefault(name, {}).update(fields)
    return found


def _average(values: Values, link: Link) -> None:
    places = [(n, f) for n in sorted(values) for f, v in values[n].items() if _is_float(v)]
    lines = [f"{n} {f}: {np.size(values[n][f])} {_is_wide(values[n][f])}" for n, f in places]
    check_alike(link, lines)
    for wide in (False, True):
        dtype = np.dtype(np.float64 if wide else np.float32)
        some = [place for place in places if _is_wide(values[place[0]][place[1]]) == wide]
        arrays = [np.asarray(values[name][field]) for name, field in some]
        if not arrays:
            continue
        joined = np.concatenate([array.astype(dtype).reshape(-1) for array in arrays])
        link.all_reduce_mean(joined)
        start = 0
        for (name, field), array in zip(some, arrays, strict=True):
            mean = joined[start : start + array.size].reshape(array.shape)
            number = isinstance(values[name][field], float)
            values[name][field] = float(mean) if number else mean
            start += array.size


def _is_float(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return bool(value.dtype.kind == "f" or value.dtype == _BFLOAT16)
    return isinstance(value, float)


def _is_wide(value: Any) -> bool:
    return isinstance(value, float) or bool(value.dtype.itemsize > 4)


def own_parts(means: Mapping[str, Any], sizes: Mapping[str, int], link: Link) -> Values:
    """Return what this rank owns of means' states that were put together."""
    ownership = share_out(sizes, link.world)
    found: Values = {}
    for name, fields in means.items():
        start, stop = ownership.part(name, link.rank)
        if stop > start:
            found[name] = {
                field: value[start:stop] if np.size(value) == sizes[name] else value
                for field, value in fields.items()
            }
    return found


def as_tensors(values: Values) -> dict[str, dict[str, Any]]:
    """Return the same with copies as torch tensors."""
    return {
        name: {
            field: as_tensor(value.copy()) if isinstance(value, np.ndarray) else value
            for field, value in fields.items()
        }
        for name, fields in values.items()
    }


def as_arrays(values: Mapping[str, Mapping[str, Any]]) -> Values:
    """Return the same with copies as NumPy arrays."""
    return {
        name: {
            field: torch_to_numpy(name, value).copy() if isinstance(value, torch.Tensor) else value
            for field, value in fields.items()
        }
        for name, fields in values.items()
    }


def to_tensors(state: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return a state dict as a flat mapping of tensors, which any checkpoint format holds.

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
    about: dict[str, Any] = {}
    for key, value in state.items():
        if key not in ("states", "means"):
            about[key] = value
            continue
        about[key] = numbers = {}
        for name, fields in value.items():
            numbers[name] = {f: v for f, v in fields.items() if not isinstance(v, torch.Tensor)}
            for field, item in fields.items():
                if isinstance(item, torch.Tensor):
                    tensors[f"{key}/{name}/{field}"] = item
    told = np.frombuffer(json.dumps(about).encode(), np.uint8)
    tensors[_ABOUT] = torch.from_numpy(told.copy())
    return tensors


def from_tensors(tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Return the state dict that `to_tensors` was given.

    Raises
    ------
    GradientError
        If these are no such tensors.
    """
    try:
        state: dict[str, Any] = json.loads(bytes(tensors[_ABOUT].tolist()))
        for key, tensor in tensors.items():
            if key != _ABOUT:
                kind, _, rest = key.partition("/")
                name, _, field = rest.rpartition("/")
                state[kind][name][field] = tensor
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise GradientError("these tensors hold no state of gradient compression") from error
    return state


def save_distributed(state: Mapping[str, Any], path: str) -> None:
    """Save the state dicts of all ranks by ``torch.distributed.checkpoint``; all call it together.

    Parameters
    ----------
    state : mapping
        From `GradientCompression.state_dict`.
    path : str
        A folder that all ranks see.
    """
    from torch.distributed.checkpoint.state_dict_saver import save

    prefix = _prefix(state.get("mode"), state.get("rank", 0))
    save({prefix + key: value for key, value in to_tensors(state).items()}, checkpoint_id=path)


def load_distributed(path: str, rank: int) -> dict[str, Any]:
    """Return what a rank, or for means every rank, saved by `save_distributed`.

    Parameters
    ----------
    path : str
    rank : int

    Raises
    ------
    GradientError
        If it holds no state of this rank.
    """
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import load

    known: dict[str, Any] = FileSystemReader(path).read_metadata().state_dict_metadata
    for prefix in (_prefix("mean", 0), _prefix("exact", rank)):
        tensors = {
            key: torch.empty(tuple(about.size), dtype=about.properties.dtype)
            for key, about in known.items()
            if key.startswith(prefix) and hasattr(about, "size")
        }
        if tensors:
            load(tensors, checkpoint_id=path)
            return from_tensors({key[len(prefix) :]: value for key, value in tensors.items()})
    raise GradientError(
        f"{path} holds no state of rank {rank}; states of another number of ranks are loaded if "
        'they were saved with mode="mean"'
    )


def check_compressor(state: Mapping[str, Any], compressor: Compressor) -> None:
    """Refuse a state dict of another compressor.

    Raises
    ------
    GradientError
    """
    saved = state["compressor"]
    if saved != compressor.text():
        raise GradientError(
            f"the state is of {short(saved)}, but the compressor is {label(compressor)}; "
            "load it with strict=False to keep its residuals"
        )


def _prefix(mode: Any, rank: int) -> str:
    return "mean/" if mode == "mean" else f"rank {rank}/"
