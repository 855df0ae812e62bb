"""Flatten, split, join and carry the states of compressors.

A field of a state is another state, an array, or a number. Arrays with as many elements as the
gradient belong to its elements; all others, and numbers, belong to the tensor as a whole.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from tensorcomp.codecs.rounding import is_real
from tensorcomp.errors import PARSING_ERRORS, CodecError, GradientError
from tensorcomp.gradients.base import Compressor, GradientSpec, State

_S = TypeVar("_S", bound=State)


@contextlib.contextmanager
def reading_saved() -> Iterator[None]:
    """Refuse a saved state that the block cannot read, in one line."""
    try:
        yield
    except (*PARSING_ERRORS, CodecError, MemoryError) as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        raise GradientError(
            f"the saved state is damaged ({what}); give what state_dict() returned"
        ) from error


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
    """Fill a template state with the values of a flattened one, not copied.

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


def split(state: _S, specs: Sequence[GradientSpec]) -> list[_S]:
    """Split the state of tensors coded as one into the tensors' states.

    Parameters
    ----------
    state : State
    specs : sequence of GradientSpec
        Those of the parts, whose elements are together the state's.
    """
    found, start = [], 0
    for spec in specs:
        own = slice(start, start + spec.size)
        found.append(_combined([state], spec, functools.partial(_copied, own=own)))
        start += spec.size
    if start != state.spec.size:
        raise GradientError(
            f"{state.spec.name}: expected sizes that sum to {state.spec.size}, got {start}"
        )
    return found


def join(states: Sequence[_S], spec: GradientSpec) -> _S:
    """Join the states of tensors that are coded as one from now on.

    Numbers are those of the first.

    Raises
    ------
    GradientError
        If the states are of different kinds.
    """
    return _combined(states, spec, np.concatenate)


def _copied(arrays: Sequence[np.ndarray], own: slice) -> np.ndarray:
    return arrays[0][own].copy()


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
        elif isinstance(values[0], np.ndarray) and values[0].size == first.spec.size:
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
    return keep_fitting(compressor.init(spec or state.spec), flatten(state))


def keep_fitting(template: _S, values: Mapping[str, Any]) -> _S:
    """Fill a template state with what fits of a flattened one.

    Fields of the same name and size fit, with and without wrappers around them.

    Parameters
    ----------
    template : State
    values : mapping
        Of a state of any compressor.
    """
    wanted = flatten(template)
    found = {key.rpartition(".")[2]: value for key, value in values.items()}
    for key, value in wanted.items():
        other = values.get(key, found.get(key.rpartition(".")[2]))
        if other is not None and np.size(other) == np.size(value):
            wanted[key] = other
    return unflatten(template, wanted)


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
        fitting = array.reshape(like.shape).astype(like.dtype, copy=False)
    if is_real(like.dtype) and not np.isfinite(fitting).all():
        raise GradientError(f"{where}: expected finite values; the state is damaged")
    return fitting
