"""Synaptic flow: how much of a constant signal passes through each weight, without data."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from tensorcomp.errors import PruningError
from tensorcomp.pruning.batches import to_device
from tensorcomp.pruning.losses import logits_of
from tensorcomp.pruning.masking import Masks, kept_places
from tensorcomp.pruning.preserve_state import preserve_state
from tensorcomp.pruning.targets import require_values, unwrapped


def synaptic_flow(
    model: nn.Module, example: Any, names: Iterable[str], masks: Masks | None = None
) -> dict[str, np.ndarray]:
    """Compute the synaptic flow |w| · ∂R/∂|w| of each weight.

    R is the sum of the outputs of the network of magnitudes for an input of ones. Parameters,
    biases too, and buffers are taken by magnitude, in float64. The model runs in evaluation mode,
    and is left as it was.

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
    wanted = _first_names(inner, names)
    with (
        preserve_state(inner, weights=False),
        torch.inference_mode(mode=False),
        torch.enable_grad(),
    ):
        inner.eval()
        values = _magnitudes(inner, kept)
        weights = {first: values[first].requires_grad_() for first in wanted.values()}
        flows = dict(zip(weights, _gradients(inner, example, values, weights), strict=True))
    scores = {
        name: (weights[first].detach() * flows[first]).cpu().numpy()
        for name, first in wanted.items()
    }
    for name, score in scores.items():
        if not np.isfinite(score).all():
            raise PruningError(
                f"the synaptic flow of {name!r} is not finite: the network is too deep or wide for "
                "float64, or divides by zero"
            )
    if not any(score.any() for score in scores.values()):
        raise PruningError(
            "no signal reaches the output: the masks cut it off, or the network is too deep for "
            "float64"
        )
    return scores


def _first_names(model: nn.Module, names: Iterable[str]) -> dict[str, str]:
    """Return for names of parameters those under which they come first: tied ones have several."""
    firsts = {id(parameter): name for name, parameter in model.named_parameters()}
    every = dict(model.named_parameters(remove_duplicate=False))
    names = list(names)
    for name in names:
        if name not in every:
            raise PruningError(f"the model has no parameter {name!r}")
    return {name: firsts[id(every[name])] for name in names}


def _magnitudes(model: nn.Module, kept: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return float64 magnitudes of a model's parameters and buffers; copies of its integers."""
    found: dict[str, torch.Tensor] = {}
    for name, tensor in itertools.chain(model.named_parameters(), model.named_buffers()):
        value = tensor.detach()
        if value.is_floating_point():
            value = value.double()
            # A buffer of −∞ masks attention to later positions, and stays.
            value = torch.where(value.isinf(), value, value.abs())
            if name in kept:
                value.masked_fill_(~kept[name], 0)
        found[name] = value.clone()
    return found


def _gradients(
    model: nn.Module,
    example: Any,
    values: Mapping[str, torch.Tensor],
    weights: Mapping[str, torch.Tensor],
) -> list[torch.Tensor]:
    """Return ∂R/∂w of some weights; zero where outputs do not depend on them."""
    device = next(model.parameters()).device
    inputs: Any = to_device(example, device)
    named: dict[str, Any] = {}
    if isinstance(inputs, Mapping):
        named = {key: _ones(value) for key, value in inputs.items()}
        inputs = ()
    arguments = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    found = torch.func.functional_call(
        _Differentiated(model, list(weights.values()), device),
        {f"model.{name}": value for name, value in values.items()},
        tuple(map(_ones, arguments)),
        named,
    )
    pairs = zip(weights.values(), found, strict=True)
    return [torch.zeros_like(weight) if flow is None else flow for weight, flow in pairs]


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
