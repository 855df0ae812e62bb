"""Differentiate a loss: gradients and Hessian-vector products."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import torch

from tensorcomp.errors import PruningError

Tensors: TypeAlias = "dict[str, torch.Tensor]"

# Gradients of float16 are mostly below what it can hold: the largest factor that fits is taken.
_FLOAT16_FACTORS = (2.0**15, 2.0**8, 1.0)


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor, dense, as float32, or as it is if it is float64."""
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def gradients(loss: torch.Tensor, weights: Mapping[str, torch.Tensor], place: str) -> Tensors:
    """Compute the gradient of a loss, without touching ``.grad``; its graph is used up.

    Gradients are float32, float64 for float64 weights; those of weights that the loss does not
    depend on are left out. `place`, such as ``minibatch 3``, is for messages.
    """

    def attempt(factor: float, *, last: bool) -> Sequence[torch.Tensor | None]:
        return torch.autograd.grad(
            loss,
            list(weights.values()),
            torch.full_like(loss, factor),
            retain_graph=not last,
            allow_unused=True,
        )

    return _finite(attempt, weights, f"the gradient of {place}")


def hessian_product(
    loss: torch.Tensor, weights: Mapping[str, torch.Tensor], vector: Tensors, place: str
) -> Tensors:
    """Compute the product of a loss's Hessian with a vector, by differentiating twice.

    The vector has the weights' shapes, zero where one is missing; if the model is in half
    precision, it is of the size of 1, see `unit_factor`. Weights without a second derivative are
    left out.
    """

    def attempt(factor: float, *, last: bool) -> Sequence[torch.Tensor | None]:
        first = torch.autograd.grad(
            loss,
            list(weights.values()),
            torch.full_like(loss, factor),
            create_graph=True,
            allow_unused=True,
        )
        parts = [
            (widened(gradient) * vector[name]).sum().to(loss.device)
            for name, gradient in zip(weights, first, strict=True)
            if gradient is not None and name in vector and gradient.requires_grad
        ]
        if not parts:
            return [None] * len(weights)
        product = torch.stack([part.double() for part in parts]).sum()
        return torch.autograd.grad(
            product, list(weights.values()), retain_graph=not last, allow_unused=True
        )

    return _finite(attempt, weights, f"the Hessian's product of {place}")


def unit_factor(vector: Mapping[str, torch.Tensor]) -> float:
    """Return the power of two that scales the largest magnitude to [0.5, 1)."""
    top = max((float(part.abs().max()) for part in vector.values() if part.numel()), default=0.0)
    return 2.0 ** -math.frexp(top)[1]


def _finite(
    attempt: Callable[..., Sequence[torch.Tensor | None]],
    weights: Mapping[str, torch.Tensor],
    what: str,
) -> Tensors:
    """Return derivatives at the first loss scale under which all are finite."""
    narrow = any(weight.dtype == torch.float16 for weight in weights.values())
    factors = _FLOAT16_FACTORS if narrow else (1.0,)
    for factor in factors:
        last = factor == factors[-1]
        derivatives = attempt(factor, last=last)
        found = {
            name: widened(derivative.detach()).div(factor) if factor != 1 else widened(derivative)
            for name, derivative in zip(weights, derivatives, strict=True)
            if derivative is not None
        }
        bad = non_finite(found)
        if not bad:
            break
    else:
        raise PruningError(f"{what} is not finite in tensor {bad[0]!r}")
    return found


def non_finite(tensors: Mapping[str, torch.Tensor]) -> list[str]:
    """Return the names of the tensors that hold NaN or infinity."""
    flags = [torch.isfinite(tensor).all() for tensor in tensors.values()]
    if not flags:
        return []
    found = torch.stack([flag.to(flags[0].device) for flag in flags]).tolist()
    return [name for name, finite in zip(tensors, found, strict=True) if not finite]


def require_loss(loss: object, place: str) -> torch.Tensor:
    """Require a loss that is a finite scalar tensor with a gradient."""
    if not isinstance(loss, torch.Tensor):
        raise PruningError(f"the loss of {place} is a {type(loss).__name__}; return a tensor")
    if loss.numel() != 1:
        raise PruningError(f"the loss of {place} has the shape {list(loss.shape)}; return its mean")
    if loss.is_complex():
        raise PruningError(f"the loss of {place} is complex; return its absolute value or the like")
    if not loss.requires_grad:
        raise PruningError(
            f"the loss of {place} has no gradient: it depends on no weight, or is under no_grad"
        )
    if not torch.isfinite(loss).item():
        raise PruningError(f"the loss of {place} is {loss.item()}; it must be finite")
    return loss
