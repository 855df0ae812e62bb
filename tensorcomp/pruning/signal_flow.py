"""Synaptic flow: how much of a constant signal passes through each weight, without data."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from tensorcomp.errors import PruningError
from tensorcomp.pruning.batches import to_device
from tensorcomp.pruning.losses import logits_of
from tensorcomp.pruning.masking import Masks, kept_places
from tensorcomp.pruning.preserve_state import untouched
from tensorcomp.pruning.targets import require_values, unwrapped


def synaptic_flow(
    model: nn.Module, example: Any, names: Iterable[str], masks: Masks | None = None
) -> dict[str, np.ndarray]:
    """Return |w| · ∂R/∂|w|, R the sum of outputs of the network of magnitudes for an input of ones.

    Parameters, biases too, and buffers are taken by magnitude, in float64. The model infers, and is
    left as it was.

    Parameters
    ----------
    model : torch.nn.Module
    example : torch.Tensor, or tuple or mapping of arguments
        An input: of floats only the shape counts; integers (tokens) and booleans are used as they
        are.
    names : iterable of str
        The parameters to return.
    masks : mapping of str to numpy.ndarray, optional
        Bool, by parameter; weights that are not kept count as zero.

    Returns
    -------
    dict of str to numpy.ndarray
        By name; float64, of the parameters' shapes. The values of one layer add up to R, if the
        network is one of linear layers without biases and of rectifiers.

    Raises
    ------
    PruningError
        If a name is unknown, a mask does not fit, the model returns no tensor of floats, the signal
        overflows float64, or none of it reaches the output.

    References
    ----------
    Tanaka, Kunin, Yamins & Ganguli 2020, "Pruning neural networks without any data by iteratively
    conserving synaptic flow".
    """
    inner = unwrapped(model)
    require_values(inner)
    kept = kept_places(inner, masks or {})
    wanted = first_names(inner, names)

    def magnitude(name: str, tensor: torch.Tensor) -> torch.Tensor:
        # A buffer of −∞ closes the attention to what is ahead, and stays.
        found = torch.where(tensor.isinf(), tensor, tensor.abs())
        return found.masked_fill_(~kept[name], 0) if name in kept else found

    with untouched(inner, weights=False), torch.inference_mode(mode=False):
        inner.eval()
        values = doubled(inner, magnitude)
        gradients = flow_gradients(inner, example, values, set(wanted.values()))
    scores: dict[str, np.ndarray] = {}
    for name, first in wanted.items():
        score = (values[first].detach() * gradients[first]).cpu().numpy()
        if not np.isfinite(score).all():
            raise PruningError(
                f"the synaptic flow of {name!r} is not finite: the network is too deep or wide for "
                "float64, or divides by zero"
            )
        scores[name] = score
    if not any(score.any() for score in scores.values()):
        raise PruningError(
            "no signal reaches the output: the masks cut it off, or the network is too deep for "
            "float64"
        )
    return scores


def first_names(model: nn.Module, names: Iterable[str]) -> dict[str, str]:
    """Return for names of parameters those under which they come first: tied ones have several.

    Raises
    ------
    PruningError
        If there is no such parameter.
    """
    firsts = {id(parameter): name for name, parameter in model.named_parameters()}
    every = dict(model.named_parameters(remove_duplicate=False))
    found = {}
    for name in names:
        if name not in every:
            raise PruningError(f"the model has no parameter {name!r}")
        found[name] = firsts[id(every[name])]
    return found


def doubled(
    model: nn.Module, value: Callable[[str, torch.Tensor], torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return float64 stand-ins for a model's parameters and buffers; parameters are leaves.

    Parameters
    ----------
    model : torch.nn.Module
    value : callable
        Given the name and a float64 copy; returns what stands in. Buffers of integers are copied.
    """
    found: dict[str, torch.Tensor] = {}
    for name, tensor in _named_tensors(model):
        if not tensor.is_floating_point():
            found[name] = tensor.detach().clone()
            continue
        found[name] = value(name, tensor.detach().to(torch.float64, copy=True))
        if isinstance(tensor, nn.Parameter):
            found[name].requires_grad_()
    return found


def _named_tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def flow_gradients(
    model: nn.Module,
    example: Any,
    values: Mapping[str, torch.Tensor],
    names: Iterable[str],
    running: contextlib.AbstractContextManager[Any] | None = None,
) -> dict[str, torch.Tensor]:
    """Return ∂R/∂w for some parameters, R the sum of the outputs for an input of ones.

    Parameters
    ----------
    model : torch.nn.Module
    example
        As for `synaptic_flow`.
    values : mapping of str to torch.Tensor
        What stands in for all parameters and buffers, from `doubled`.
    names : iterable of str
    running : context manager, optional
        Around the run of the model.

    Returns
    -------
    dict of str to torch.Tensor
        Zero for parameters that outputs do not depend on.
    """
    device = next(model.parameters()).device
    inputs = to_device(example, device)
    arguments = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    named: dict[str, Any] = {}
    if isinstance(inputs, Mapping):
        arguments, named = (), {key: _ones(value) for key, value in inputs.items()}
    ordered = sorted(names)
    with running or contextlib.nullcontext(), torch.inference_mode(mode=False), torch.enable_grad():
        gradients = torch.func.functional_call(
            _Differentiated(model, [values[name] for name in ordered], device),
            {f"model.{name}": value for name, value in values.items()},
            tuple(map(_ones, arguments)),
            named,
        )
    return {
        name: torch.zeros_like(values[name]) if gradient is None else gradient
        for name, gradient in zip(ordered, gradients, strict=True)
    }


class _Differentiated(nn.Module):
    """Runs a model and returns ∂R/∂w: where its layers run again for that, as they first did."""

    def __init__(self, model: nn.Module, weights: list[torch.Tensor], device: torch.device) -> None:
        super().__init__()
        self.model = model
        self._weights = weights
        self._device = device

    def forward(self, *arguments: Any, **named: Any) -> tuple[torch.Tensor | None, ...]:
        outputs = self.model(*arguments, **named)
        parts = [part.sum().to(self._device) for part in _outputs(outputs)]
        total = torch.stack(parts).sum() if parts else None
        if total is None or not total.requires_grad:
            raise PruningError(
                f"the model returns a {type(outputs).__name__} without floats that depend on its "
                "weights; signals cannot be followed"
            )
        return torch.autograd.grad(total, self._weights, allow_unused=True)


def _ones(value: Any) -> Any:
    floating = isinstance(value, torch.Tensor) and value.is_floating_point()
    return torch.ones_like(value, dtype=torch.float64) if floating else value


def _outputs(outputs: Any) -> list[torch.Tensor]:
    """Return the logits of a model, or all floats that it returns."""
    logits = logits_of(outputs)
    if logits is not None:
        return [logits] if logits.is_floating_point() else []
    if isinstance(outputs, Mapping):
        outputs = list(outputs.values())
    if isinstance(outputs, (tuple, list)):
        return [part for thing in outputs for part in _outputs(thing)]
    return []
