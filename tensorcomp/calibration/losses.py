"""Run a model on a minibatch, and compute its loss."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.nn import functional as F

from tensorcomp.errors import PruningError

Loss: TypeAlias = "Callable[[nn.Module, Any], torch.Tensor]"

_GIVE_LOSS = "give loss=, a function of model and batch"


def cross_entropy(model: nn.Module, batch: Any) -> torch.Tensor:
    """Compute the mean cross-entropy of a classifier.

    Parameters
    ----------
    model : torch.nn.Module
        Returns logits, or an object that has them as ``logits``.
    batch : tuple, list or mapping
        ``(inputs, targets)``; inputs are a tensor, or a tuple or mapping of arguments. Targets are
        classes, shape ``(N,)`` for logits ``(N, C)``, ``(N, L)`` for ``(N, L, C)``, ``(N, …)`` for
        ``(N, C, …)``; or probabilities of the logits' shape. A mapping is given to the model by
        name, and the model returns its own loss as ``loss``. Floating inputs are cast to the type
        of the model's first parameter.

    Raises
    ------
    PruningError
        If a minibatch is of another form, or targets do not fit the logits.
    """
    inputs, targets = inputs_and_targets(batch)
    outputs = run(model, inputs)
    if targets is None:
        own = getattr(outputs, "loss", None)
        if not isinstance(own, torch.Tensor):
            raise PruningError(
                f"a minibatch is a {type(batch).__name__} without targets, and the model returns "
                f"no loss; give (inputs, targets), or {_GIVE_LOSS}"
            )
        return own
    logits = logits_of(outputs)
    if logits is None:
        raise PruningError(
            f"the model returns a {type(outputs).__name__}, not logits; {_GIVE_LOSS}"
        )
    return _cross_entropy(logits, torch.as_tensor(targets, device=logits.device))


def _cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    shape, given = tuple(logits.shape), tuple(targets.shape)
    if not logits.is_floating_point() or logits.ndim < 2:
        raise PruningError(f"logits are floats of shape (N, …, C); got {logits.dtype} {shape}")
    if logits.dtype != torch.float64:
        logits = logits.float()
    last, second = shape[:-1], (shape[0], *shape[2:])
    # Where both would fit, three axes are those of a sequence, four those of images.
    if targets.is_floating_point() and given == shape:
        dense = logits.movedim(-1, 1) if logits.ndim == 3 else logits
        weights = targets.movedim(-1, 1) if logits.ndim == 3 else targets
        return F.cross_entropy(dense, weights.to(dense.dtype))
    if targets.is_floating_point() or given not in (last, second):
        raise PruningError(
            f"targets of {targets.dtype} {given} do not fit logits of shape {shape}; {_GIVE_LOSS}"
        )
    if given == last and (logits.ndim <= 3 or given != second):
        logits = logits.movedim(-1, 1)
    return F.cross_entropy(logits, targets.long())


def inputs_and_targets(batch: Any) -> tuple[Any, Any]:
    """Split a minibatch into the inputs of the model and the targets, if any."""
    if not isinstance(batch, (tuple, list)):
        return batch, None
    if len(batch) not in (1, 2):
        raise PruningError(
            f"a minibatch has {len(batch)} parts, not inputs and targets; {_GIVE_LOSS}"
        )
    return batch[0], batch[1] if len(batch) == 2 else None


def example_of(batch: Any) -> Any:
    """Return an example input from a minibatch: one sample, if it is a tensor."""
    inputs, _ = inputs_and_targets(batch)
    return inputs[:1] if isinstance(inputs, torch.Tensor) and inputs.ndim else inputs


def run(model: nn.Module, inputs: Any) -> Any:
    """Run a model on inputs, floats cast to its first parameter's type."""
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)

    def cast(value: Any) -> Any:
        floating = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(dtype) if floating else value

    return call(model, inputs, cast)


def call(model: nn.Module, inputs: Any, convert: Callable[[Any], Any]) -> Any:
    """Call a model on an input, or on a tuple or mapping of arguments.

    Each is converted.
    """
    if isinstance(inputs, Mapping):
        return model(**{str(key): convert(value) for key, value in inputs.items()})
    return model(*map(convert, inputs if isinstance(inputs, (tuple, list)) else (inputs,)))


def logits_of(outputs: Any) -> torch.Tensor | None:
    """Return a model's logits: its output, or the attribute ``logits`` of it."""
    found = outputs if isinstance(outputs, torch.Tensor) else getattr(outputs, "logits", None)
    return found if isinstance(found, torch.Tensor) else None


@contextlib.contextmanager
def tempered(model: nn.Module, temperature: float) -> Iterator[None]:
    """Divide the logits of a model by a temperature until the block ends.

    Whatever loss is computed from what ``model(…)`` returns is then that of divided logits.
    """
    if temperature == 1:
        yield
        return
    calls = 0
    divided = f"GraSP divides logits by {temperature:g}"
    remedy = "give loss=, a function that makes it of the logits, or temperature=1"

    def divide(_module: nn.Module, _inputs: Any, outputs: Any) -> Any:
        nonlocal calls
        calls += 1
        logits = logits_of(outputs)
        if logits is None or getattr(outputs, "loss", None) is not None:
            what = "no logits" if logits is None else "its own loss"
            raise PruningError(f"{divided}, but the model returns {what}; {remedy}")
        if isinstance(outputs, torch.Tensor):
            return logits / temperature
        if hasattr(outputs, "_replace"):
            return outputs._replace(logits=logits / temperature)
        outputs.logits = logits / temperature
        return outputs

    hook = model.register_forward_hook(divide)
    try:
        yield
    finally:
        hook.remove()
    if not calls:
        raise PruningError(f"{divided}, but the loss does not call the model; {remedy}")
