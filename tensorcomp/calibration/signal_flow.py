"""Measure synaptic flow: the signal through each weight, without data."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from tensorcomp.calibration.batches import to_device
from tensorcomp.calibration.losses import call, logits_of
from tensorcomp.calibration.masking import Masks, kept_places
from tensorcomp.calibration.preserve_state import preserve_state
from tensorcomp.calibration.targets import require_values, unwrapped
from tensorcomp.errors import PruningError


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
        If a mask does not fit, the model returns no tensor of floats, the signal
        overflows float64, or none of it reaches the output.

    References
    ----------
    Tanaka, Kunin, Yamins & Ganguli 2020, "Pruning neural networks without any data by iteratively
    conserving synaptic flow".
    """
    inner = unwrapped(model)
    require_values(inner)
    kept = kept_places(inner, masks or {})
    every = dict(inner.named_parameters(remove_duplicate=False))
    weights = {name: every[name] for name in names}
    device = next(inner.parameters()).device
    inputs = to_device(example, device)
    with (
        preserve_state(inner, weights=False),
        torch.inference_mode(mode=False),
        torch.enable_grad(),
    ):
        inner.eval()
        for name, tensor in itertools.chain(inner.named_parameters(), inner.named_buffers()):
            if tensor.is_floating_point():
                tensor.data = _magnitudes(tensor.data, kept.get(name))
        for weight in weights.values():
            weight.requires_grad_()
        total = _total(call(inner, inputs, _ones), device)
        flows = torch.autograd.grad(total, list(weights.values()), allow_unused=True)
        scores = {
            name: np.zeros(weight.shape) if flow is None else (weight.data * flow).cpu().numpy()
            for (name, weight), flow in zip(weights.items(), flows, strict=True)
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


def _magnitudes(tensor: torch.Tensor, kept: torch.Tensor | None) -> torch.Tensor:
    """Return magnitudes, float64; 0 where a mask drops them."""
    double = tensor.double()
    # A buffer of −∞ masks attention to later positions, and stays.
    found = torch.where(double.isinf(), double, double.abs())
    return found if kept is None else found.masked_fill_(~kept, 0)


def _total(outputs: Any, device: torch.device) -> torch.Tensor:
    """Return R, the sum of a model's outputs."""
    parts = [part.sum().to(device) for part in _outputs(outputs)]
    total = torch.stack(parts).sum() if parts else None
    if total is None or not total.requires_grad:
        kind = type(outputs).__name__
        raise PruningError(f"the model returns a {kind} without floats that depend on its weights")
    return total


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
