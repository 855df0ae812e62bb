"""Flatten, split, join and carry the states of compressors.

A field of a state is another state, an array, or a number. Arrays with as many elements as the
gradient belong to its elements; all others, and numbers, belong to the tensor as a whole.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from tensorcomp.codecs.rounding import is_real
from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Compressor, GradientSpec, State

_S = TypeVar("_S", bound=State)


def flatten(state: State) -> dict[str, Any]:
    """Flatten a state to a mapping of dotted field names.

    Values are numpy arrays (not copied), integers, floats and texts; working memory is left out.
    """
    flat: dict[str, Any] = {}
    for name, value in _remembered(state):
        if isinstance(value, State):
            flat |= {f"{name}.{below}": item for below, item in flatten(value).items()}
        else:
            flat[name] = value
    return flat


def unflatten(template: _S, values: Mapping[str, Any]) -> _S:
    """Fill a template state with the values of a flattened one.

    Parameters
    ----------
    template : State
        Of the same compressor and spec, from `Compressor.init` say.
    values : mapping

    Raises
    ------
    GradientError
        If a value is missing or does not fit the template's.
    """
    changes: dict[str, Any] = {}
    for name, value in _remembered(template):
        where = f"{template.spec.name}: {name}"
        if isinstance(value, State):
            prefix = f"{name}."
            below = {k[len(prefix) :]: v for k, v in values.items() if k.startswith(prefix)}
            changes[name] = unflatten(value, below)
        elif name not in values:
            raise GradientError(f"expected a saved {where}, got a state of another compressor")
        elif isinstance(value, np.ndarray):
            changes[name] = _fitting(np.asarray(values[name]), value, where)
        else:
            kind, found = type(value), values[name]
            try:
                changes[name] = kind(found)
            except (TypeError, ValueError) as error:
                message = f"expected {where} to be {kind.__name__}, got {str(found)[:60]!r}"
                raise GradientError(message) from error
    return replace(template, **changes)


def split(state: _S, sizes: Sequence[int], specs: Sequence[GradientSpec]) -> list[_S]:
    """Split the state of tensors coded as one into the tensors' states.

    Parameters
    ----------
    state : State
    sizes : sequence of int
        Elements of each; their sum is the number of the state's elements.
    specs : sequence of GradientSpec
        Those of the parts.
    """
    stops = np.cumsum(sizes)
    starts = stops - np.asarray(sizes)
    total = int(stops[-1]) if len(sizes) else 0
    if total != state.spec.size:
        raise GradientError(
            f"{state.spec.name}: expected sizes that sum to {state.spec.size}, got {total}"
        )
    return [
        _combined([state], spec, functools.partial(_copied, start=int(start), stop=int(stop)))
        for start, stop, spec in zip(starts, stops, specs, strict=True)
    ]


def join(states: Sequence[_S], spec: GradientSpec) -> _S:
    """Join the states of tensors that are coded as one from now on.

    Numbers are those of the first.

    Raises
    ------
    GradientError
        If the states are of different kinds.
    """
    return _combined(states, spec, np.concatenate)


def _copied(arrays: Sequence[np.ndarray], start: int, stop: int) -> np.ndarray:
    return arrays[0][start:stop].copy()


def _combined(
    states: Sequence[_S], spec: GradientSpec, combine: Callable[[list[np.ndarray]], np.ndarray]
) -> _S:
    """Combine the flat arrays that belong to elements; the rest is that of the first state."""
    first = states[0]
    if len({type(state) for state in states}) > 1:
        raise GradientError(f"{spec.name}: expected states of one compressor, got different ones")
    changes: dict[str, Any] = {"spec": spec}
    for field in fields(first):
        values = [getattr(state, field.name) for state in states]
        if isinstance(values[0], State):
            changes[field.name] = _combined(values, spec, combine)
        elif is_elementwise(first, values[0]):
            changes[field.name] = combine([value.reshape(-1) for value in values])
    return replace(first, **changes)


def carry(compressor: Compressor, state: State, spec: GradientSpec | None = None) -> State:
    """Carry what fits of a state, residuals above all, to a compressor.

    Parameters
    ----------
    compressor : Compressor
    state : State
        Of a compressor that was used before.
    spec : GradientSpec, optional
        That of `state` if not given.
    """
    return _carried(compressor.init(spec or state.spec), state)


def _carried(fresh: State, old: Any) -> State:
    like = old  # the state of the same kind, below wrappers that are no longer there
    while like is not None and type(like) is not type(fresh):
        like = getattr(like, "inner", None)
    changes: dict[str, Any] = {}
    for name, value in _remembered(fresh):
        before = getattr(like, name, None)
        if isinstance(value, State):
            changes[name] = _carried(value, old if like is None else before)
        elif isinstance(value, np.ndarray) and before is not None and before.size == value.size:
            changes[name] = before.reshape(value.shape).astype(value.dtype, copy=False)
        elif not isinstance(value, np.ndarray) and like is not None:
            changes[name] = before
    return replace(fresh, **changes)


def is_elementwise(state: State, value: object) -> bool:
    """Test whether a field's value belongs to the gradient's elements."""
    return isinstance(value, np.ndarray) and value.size == state.spec.size


def _remembered(state: State) -> Iterator[tuple[str, Any]]:
    for field in fields(state):
        if field.name != "spec" and field.metadata.get("saved", True):
            yield field.name, getattr(state, field.name)


def _fitting(array: np.ndarray, like: np.ndarray, where: str) -> np.ndarray:
    if array.size != like.size:
        raise GradientError(f"{where}: expected {like.size} elements, got {array.size}")
    if is_real(array.dtype) != is_real(like.dtype) or array.dtype.kind in "cUSO":
        raise GradientError(f"{where}: expected {like.dtype}, got {array.dtype}")
    with np.errstate(over="ignore"):  # it is looked for
        fitting = np.array(array.reshape(like.shape), dtype=like.dtype)
    if is_real(like.dtype) and not np.isfinite(fitting).all():
        raise GradientError(f"{where}: expected finite values; the state is damaged")
    return fitting
