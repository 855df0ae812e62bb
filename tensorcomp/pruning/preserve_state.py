"""A model that is left as it was, whatever is done to it in between."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

from tensorcomp.pruning.generators import generators, set_generators


@contextlib.contextmanager
def preserve_state(model: nn.Module, *, weights: bool = True) -> Iterator[None]:
    """Restore a model and the generators of random numbers when the block ends, or fails.

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
    state, numbers = _ModelState(model, weights=weights), generators()
    for parameter in model.parameters():
        parameter.grad = None
    try:
        yield
    finally:
        state.restore()
        set_generators(numbers)


class _Tensor:
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
    """Return a view that has each place in memory once: of an expanded tensor, its one slice."""
    if tensor.layout != torch.strided:
        return tensor
    return tensor[tuple(slice(0, 1 if stride == 0 else None) for stride in tensor.stride())]


class _ModelState:
    """A model's modules, parameters and buffers, as they are now."""

    def __init__(self, model: nn.Module, *, weights: bool) -> None:
        self._modules = [
            (module, module.training, [(table, dict(table)) for table in _tables(module)])
            for module in model.modules()
        ]
        parameters = [_Tensor(tensor, values=weights) for tensor in model.parameters()]
        buffers = [_Tensor(tensor, values=True) for tensor in model.buffers()]
        self._tensors = parameters + buffers

    def restore(self) -> None:
        for module, training, tables in self._modules:
            module.training = training
            for table, entries in tables:
                table.clear()
                table.update(entries)
        with torch.no_grad():
            for tensor in self._tensors:
                tensor.restore()


def _tables(module: nn.Module) -> tuple[dict[str, object], ...]:
    """Return the dicts in which a module keeps its parameters, buffers and modules."""
    return module._parameters, module._buffers, module._modules  # type: ignore[return-value]
