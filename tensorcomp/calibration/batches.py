"""Iterate over the minibatches of a loader, a second time if need be."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import length_hint
from typing import Any

import numpy as np
import torch

from tensorcomp.calibration.preserve_state import generators, set_generators
from tensorcomp.errors import PruningError

OnBatch = Callable[[int, "int | None"], None]


class Batches:
    """The minibatches of a pass over data, and the same ones again.

    A further pass starts with the generators of random numbers as they were before the first, so
    that a loader that shuffles by the global ones, or by one that it was given, repeats itself.

    If there will be one, the minibatches of an iterator, which cannot be started again,
    are kept in memory. `on_batch` is called with the number of minibatches done, of all passes, and
    how many there will be, None if that is not known.
    """

    def __init__(
        self,
        data: Iterable[Any],
        wanted: int | None,
        device: torch.device,
        *,
        passes: int = 1,
        on_batch: OnBatch | None = None,
    ) -> None:
        if wanted is not None and wanted < 1:
            raise PruningError(f"expected batches to be at least 1, got {wanted}")
        iterable = hasattr(type(data), "__iter__") or hasattr(type(data), "__getitem__")
        if not iterable or isinstance(data, (torch.Tensor, np.ndarray, str, bytes, Mapping)):
            raise PruningError(
                f"expected an iterable of minibatches as data, got a {type(data).__name__}"
            )
        # Before anything of the first pass: a loader may draw its order when it is started.
        self._generators = generators() if passes > 1 else {}
        owned = _generators_of(data) if passes > 1 else []
        self._own = [(own, own.get_state()) for own in owned]
        self._first = iter(data)
        self.count = 0
        self.samples = 0
        self._data = data
        self._wanted = wanted
        self._device = device
        self._on_batch = on_batch or (lambda done, expected: None)
        self._passes = passes
        self._done = 1
        self._kept: list[Any] | None = [] if passes > 1 and self._first is data else None

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        """Yield the number of each minibatch, from 1, and the minibatch."""
        expected = length_hint(self._data, self._wanted or 0)
        expected = min(expected, self._wanted or expected) * self._passes
        for number, batch in enumerate(itertools.islice(self._first, self._wanted), 1):
            if self._kept is not None:
                self._kept.append(batch)
            moved = to_device(batch, self._device)
            self.samples += samples_of(moved)
            yield number, moved
            self.count = number
            self._on_batch(number, expected or None)
        if self._wanted is not None and self.count < self._wanted:
            ended = f"the data ended after {self.count} minibatches"
            raise PruningError(f"{ended}; {self._wanted} were asked for")
        if not self.count:
            raise PruningError("the data hold no minibatch; a loader may have been used up before")

    def again(self) -> Iterator[tuple[int, Any]]:
        """Yield them once more."""
        source: Iterable[Any] = self._data if self._kept is None else self._kept
        if self._kept is None:
            set_generators(self._generators)
            for own, state in self._own:
                own.set_state(state)
        number = 0
        for number, batch in enumerate(itertools.islice(source, self.count), 1):
            yield number, to_device(batch, self._device)
            self._on_batch(self._done * self.count + number, self._passes * self.count)
        if number < self.count:
            raise PruningError(
                f"the data gave {self.count} minibatches at first and {number} the second time; "
                "give a list of them"
            )
        self._done += 1


def _generators_of(data: object) -> list[torch.Generator]:
    """Return the random number generators that a loader and its samplers own."""
    sampler = getattr(data, "batch_sampler", None)
    parts = (data, getattr(data, "sampler", None), sampler, getattr(sampler, "sampler", None))
    found = [getattr(part, "generator", None) for part in parts]
    return [own for own in found if isinstance(own, torch.Generator)]


def to_device(batch: Any, device: torch.device) -> Any:
    """Move the tensors of a minibatch to a device; arrays become tensors.

    Tuples, lists and mappings are searched; of other objects, those with a method ``to`` are asked.
    """
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, np.ndarray):
        return torch.as_tensor(batch).to(device)
    if isinstance(batch, Mapping):
        return {key: to_device(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(value, device) for value in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)([to_device(value, device) for value in batch])
    if hasattr(batch, "to"):
        return batch.to(device)
    return batch


def samples_of(batch: Any) -> int:
    """Return the length of the first tensor in a minibatch; 1 without one."""
    pending = [batch]
    while pending:
        thing = pending.pop(0)
        if isinstance(thing, torch.Tensor):
            return thing.shape[0] if thing.ndim else 1
        if isinstance(thing, Mapping):
            pending[:0] = thing.values()
        elif isinstance(thing, (tuple, list)):
            pending[:0] = thing
    return 1
