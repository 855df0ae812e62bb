"""Convert states to plain tensors and back, and check loaded ones."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch

from tensorcomp._names import clean_name
from tensorcomp._torch_arrays import as_tensor, torch_to_numpy
from tensorcomp.codecs.rounding import is_real
from tensorcomp.errors import GradientError
from tensorcomp.gradients.ddp.checksums import digest
from tensorcomp.gradients.ddp.communicator import Communicator, check_alike
from tensorcomp.gradients.ddp.shards import MEAN_OF
from tensorcomp.gradients.ddp.state_store import SavedState
from tensorcomp.gradients.wrappers.phases import PHASES

VERSION = 1

Values = dict[str, dict[str, Any]]  # by parameter, then by field: arrays and numbers


def divide(states: Values) -> tuple[Values, Values]:
    """Return the states of parameters and those of shards' means."""
    parameters: Values = {}
    means: Values = {}
    for name, values in states.items():
        if name.startswith(MEAN_OF):
            means[name.removeprefix(MEAN_OF)] = values
        elif values:
            parameters[name] = values
    return parameters, means


def average(
    parameters: Values, means: Values, bounds: Mapping[str, tuple[int, ...]], comm: Communicator
) -> None:
    """Replace states by their mean over all ranks, which all call together.

    States of parameters become their mean over the ranks. Of the means' states, of which each rank
    holds those of its shards, all shards are put together (`bounds` are those of
    `shards.partition`); numbers, which belong to a shard, are left out.
    """
    held = {
        name: {f: value for f, value in fields.items() if _is_float_array(value)}
        for name, fields in means.items()
    }
    own = {n: {f: _wide(v).str for f, v in fields.items()} for n, fields in held.items()}
    everywhere = comm.all_gather_values(own, "fields of means")
    means.clear()
    for name, ends in bounds.items():
        dtypes = {f: d for found in everywhere for f, d in found.get(name, {}).items()}
        for field, dtype in dtypes.items():
            whole = np.zeros(ends[-1], dtype)
            if field in held.get(name, {}):
                start, stop = ends[comm.rank : comm.rank + 2]
                whole[start:stop] = held[name][field].reshape(-1)
                whole *= comm.world  # their mean is what the owner holds
            means.setdefault(name, {})[field] = whole
    for values in (parameters, means):
        every = ((name, field, v) for name in sorted(values) for field, v in values[name].items())
        floats = [one for one in every if isinstance(one[2], float) or _is_float_array(one[2])]
        check_alike(comm, [f"{name}, {f}: {np.size(v)} {_wide(v)}" for name, f, v in floats])
        for name, field, value in floats:
            mean = np.array(value, _wide(value), ndmin=1)
            if mean.size:
                comm.all_reduce_mean(mean)
            number = isinstance(value, float)
            values[name][field] = float(mean[0]) if number else mean.reshape(value.shape)
        sums = [f"{n}, {f}: checksum {digest(np.asarray(values[n][f]))}" for n, f, _ in floats]
        check_alike(comm, sums, "means of states arrived damaged")


def own_shards(
    means: Mapping[str, Mapping[str, Any]], bounds: Mapping[str, tuple[int, ...]], rank: int
) -> Values:
    """Return what a rank owns of means' states that were put together."""
    found: Values = {}
    for name, fields in means.items():
        size, (start, stop) = bounds[name][-1], bounds[name][rank : rank + 2]
        if stop > start:
            found[name] = {
                field: value[start:stop] if getattr(value, "shape", ()) == (size,) else value
                for field, value in fields.items()
            }
    return found


def _is_float_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and is_real(value.dtype)


def _wide(value: Any) -> np.dtype:
    """Return the dtype in which a number or an array is averaged."""
    narrow = isinstance(value, np.ndarray) and value.dtype.itemsize <= 4
    return np.dtype(np.float32 if narrow else np.float64)


def as_tensors(values: Values) -> Values:
    """Return the same with copies as torch tensors."""

    def copied(value: Any) -> Any:
        return as_tensor(value.copy()) if isinstance(value, np.ndarray) else value

    return {name: {f: copied(v) for f, v in fields.items()} for name, fields in values.items()}


def saved_states(
    values: Mapping[str, Mapping[str, Any]], *, strict: bool = True
) -> dict[str, SavedState]:
    """Return states of copied arrays by parameter, from `as_tensors`."""
    found = {}
    for name, fields in values.items():
        arrays = {
            field: torch_to_numpy(name, value).copy() if isinstance(value, torch.Tensor) else value
            for field, value in fields.items()
        }
        found[name] = SavedState(arrays, strict)
    return found


def checked(state: Any, comm: Communicator, names: Container[str]) -> Mapping[str, Any]:
    """Return a state dict by the model's names, without those of wrappers.

    One that is not of this model on this rank is refused.
    """
    check_fields(state, list(_FIELDS))
    clean = {name: name if name in names else clean_name(name) for name in _names(state)}
    named: dict[str, Any] = {**state, "units": [[clean[n] for n in one] for one in state["units"]]}
    for key in ("states", "means", "choices"):
        named[key] = {clean[name]: one for name, one in state[key].items()}
    if named["mode"] == "exact" and (named["world"], named["rank"]) != (comm.world, comm.rank):
        raise GradientError(
            f"the state of rank {named['rank']} of {named['world']} cannot be that of rank "
            f'{comm.rank} of {comm.world}; save with mode="mean" to go on with other ranks'
        )
    grouped = [name for names in named["units"] for name in names]
    if not all(named["units"]) or len(set(grouped)) < len(grouped):
        raise GradientError(
            "the state of gradient compression is damaged: expected each name once in 'units', "
            "got an empty unit or a name twice; give what state_dict() returned"
        )
    unknown = [name for name in (*named["states"], *named["means"]) if name not in names]
    if unknown:
        raise GradientError(f"the state is of a parameter {unknown[0]!r}, which the model lacks")
    return named


def _names(state: Mapping[str, Any]) -> set[str]:
    """Return all names of parameters in a state dict."""
    return set(chain(state["states"], state["means"], state["choices"], *state["units"]))


def check_fields(state: Any, keys: Sequence[str]) -> None:
    """Refuse a state dict of another version or with invalid fields."""
    if not isinstance(state, Mapping) or not _matches(state.get("version"), (VERSION,)):
        raise GradientError(
            f"expected a state of gradient compression of version {VERSION}; give what "
            "state_dict() returned"
        )
    for key in keys:
        if key not in state or not _matches(state[key], _FIELDS[key]):
            what = f"{key!r} is {str(state[key])[:60]!r}" if key in state else f"it has no {key!r}"
            raise GradientError(
                f"the state of gradient compression is damaged: {what}; give what state_dict() "
                "returned"
            )


def _matches(value: Any, wanted: Any) -> bool:
    """Return whether a field is as `_FIELDS` wants it."""
    if isinstance(wanted, list):
        return isinstance(value, list | tuple) and all(_matches(one, wanted[0]) for one in value)
    if isinstance(wanted, dict):
        return isinstance(value, Mapping) and all(
            isinstance(key, str) and _matches(one, wanted[str]) for key, one in value.items()
        )
    if isinstance(wanted, tuple):
        return isinstance(value, type(wanted[0])) and value in wanted
    return isinstance(value, wanted) and (
        wanted is not int or (type(value) is int and 0 <= value < 1 << 63)
    )


_FIELDS = {
    "mode": ("exact", "mean"),
    "world": int,
    "rank": int,
    "step": int,
    "compressor": str,
    "phase": PHASES,
    "metrics": [int | float],
    "choices": {str: str},
    "units": [[str]],
    "states": {str: {str: object}},
    "means": {str: {str: object}},
}
