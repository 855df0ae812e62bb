"""Restore a model and the random number generators after a block of code."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn


@contextlib.contextmanager
def preserve_state(model: nn.Module, *, weights: bool = True) -> Iterator[None]:
    """Restore a model and random number generators when a block ends or fails.

    What is restored: the values, storages and ``requires_grad`` of parameters; buffers; which
    parameters, buffers and modules each module has, and whether it is in training mode; ``.grad``,
    as the same objects; the global generators of torch (CPU, and CUDA if it is in use), NumPy and
    ``random``. Hooks are not.

    In the block all ``.grad`` are None, so that what the caller has accumulated is safe without a
    copy. Values are written back so that a graph that autograd has recorded before stays valid.

    Parameters
    ----------
    model : torch.nn.Module
    weights : bool
        Whether to keep a copy of the parameters; where the block only reads them, none is needed.
        Buffers are copied in any case.

    Examples
    --------
    >>> model = torch.nn.Linear(2, 2)
    >>> before = model.weight.clone()
    >>> with preserve_state(model):
    ...     _ = torch.nn.init.zeros_(model.weight)
    >>> torch.equal(model.weight, before)
    True
    """
    modules = [
        (module, module.training, [(table, dict(table)) for table in _tables(module)])
        for module in model.modules()
    ]
    tensors = [_SavedTensor(tensor, values=weights) for tensor in model.parameters()]
    tensors += [_SavedTensor(tensor, values=True) for tensor in model.buffers()]
    for parameter in model.parameters():
        parameter.grad = None
    with preserve_generators():
        try:
            yield
        finally:
            for module, training, tables in modules:
                module.training = training
                for table, entries in tables:
                    table.clear()
                    table.update(entries)
            with torch.no_grad():
                for saved in tensors:
                    saved.restore()


def _tables(module: nn.Module) -> tuple[dict[str, object], ...]:
    """Return a module's dicts of parameters, buffers and modules."""
    return module._parameters, module._buffers, module._modules  # type: ignore[return-value]


class _SavedTensor:
    """A parameter or buffer: its storage, and its values if they are to be kept."""

    def __init__(self, tensor: torch.Tensor, *, values: bool) -> None:
        self._tensor = tensor
        self._grad = tensor.grad if tensor.is_leaf else None
        self._needs_grad = tensor.requires_grad
        self._data = None if nn.parameter.is_lazy(tensor) else tensor.data
        self._values = _once(self._data).clone() if values and self._data is not None else None

    def restore(self) -> None:
        if self._data is not None:
            if self._values is not None:
                # Not the tensor itself: its version would change.
                _once(self._data).copy_(self._values)
            self._tensor.data = self._data
        if self._tensor.is_leaf:
            if self._tensor.requires_grad != self._needs_grad:
                self._tensor.requires_grad_(self._needs_grad)
            self._tensor.grad = self._grad


def _once(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view that has each address in memory once."""
    if tensor.layout != torch.strided:
        return tensor
    return tensor[tuple(slice(0, 1 if stride == 0 else None) for stride in tensor.stride())]


@contextlib.contextmanager
def preserve_generators() -> Iterator[None]:
    """Restore the global random number generators when the block ends."""
    before = generators()
    try:
        yield
    finally:
        set_generators(before)


def seed_generators(seed: int) -> None:
    """Seed the global generators of torch, NumPy and ``random``."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - the global one is what loaders use
    random.seed(seed)


def generators() -> dict[str, Any]:
    """Return the state of the global generators, as tensors and plain values."""
    own: dict[str, Any] = dict(np.random.get_state(legacy=False))  # noqa: NPY002
    if "key" in own["state"]:  # of the usual generator, an array
        key = torch.from_numpy(own["state"]["key"].astype(np.int64))
        own["state"] = {**own["state"], "key": key}
    # Asking for CUDA's state would set CUDA up.
    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    cuda = torch.cuda.get_rng_state_all() if in_use else []
    cpu = torch.get_rng_state()
    return {"torch": cpu, "cuda": cuda, "numpy": own, "random": random.getstate()}


def set_generators(state: dict[str, Any]) -> None:
    """Set the global generators to what `generators` returned."""
    own = dict(state["numpy"])
    if "key" in own["state"]:
        key = own["state"]["key"].numpy().astype(np.uint32)
        own["state"] = {**own["state"], "key": key}
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])
    np.random.set_state(own)  # noqa: NPY002
    random.setstate(state["random"])
