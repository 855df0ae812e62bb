"""Raise errors that are safetensors' as well, for callers that catch those."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tensorcomp.errors import TensorcompError


@contextmanager
def safetensors_errors() -> Iterator[None]:
    """Make errors of the block a ``SafetensorError`` too.

    Their type is a subclass of what it was. safetensors is imported when there is an error.
    """
    try:
        yield
    except TensorcompError as error:
        error.__class__ = _both(type(error))
        raise


_TYPES: dict[type[TensorcompError], type[TensorcompError]] = {}


def _both(kind: type[TensorcompError]) -> type[TensorcompError]:
    """Return a type that is this one and ``SafetensorError``."""
    from safetensors import SafetensorError

    if issubclass(kind, SafetensorError):
        return kind
    if kind not in _TYPES:
        members = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__reduce__": _reduce}
        _TYPES[kind] = type(kind.__name__, (kind, SafetensorError), members)
    return _TYPES[kind]


def _reduce(error: TensorcompError) -> tuple[Any, ...]:
    """Pickle an error without its type, which no module has."""
    return _restored, (type(error).__bases__[0], error.args, dict(error.__dict__))


def _restored(
    kind: type[TensorcompError], args: tuple[Any, ...], fields: Mapping[str, Any]
) -> TensorcompError:
    error = _both(kind)(*args)
    error.__dict__.update(fields)
    return error
