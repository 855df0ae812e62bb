"""Differentiate a loss: gradients and Hessian-vector products."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TypeAlias

import torch

from tensorcomp.errors import PruningError

Tensors: TypeAlias = "dict[str, torch.Tensor]"

# Gradients of float16 are mostly below what it can hold: the largest factor that fits is taken,
# 1 where weights are wider.
_FLOAT16_FACTORS = (2.0**15, 2.0**8, 1.0)


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor, dense, as float32, or as it is if it is float64."""
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def sum_of_squares(values: torch.Tensor, axis: int) -> torch.Tensor:
    """Return the sums of squares along an axis, float32 or float64."""
    dtype = torch.float64 if values.dtype == torch.float64 else torch.float32
    norms: torch.Tensor = torch.linalg.vector_norm(values, dim=axis, dtype=dtype)
    return norms.square()


def derivatives(
    loss: torch.Tensor,
    weights: Mapping[str, torch.Tensor],
    place: str,
    vector: Tensors | None = None,
) -> Tensors:
    """Compute a loss's gradient, or its Hessian's product with a vector.

    They are float32, float64 for float64 weights; those of weights that the loss does not depend on
    are left out. ``.grad`` is not touched, the graph of the loss is used up. `place`, such as
    ``minibatch 3``, is for messages. The vector has the weights' shapes, zero where one is missing;
    if the model is in half precision, it is of the size of 1, see `unit_factor`.
    """
    narrow = any(weight.dtype == torch.float16 for weight in weights.values())
    bad: list[str] = []
    for factor in _FLOAT16_FACTORS if narrow else _FLOAT16_FACTORS[-1:]:
        found = _scaled(loss, weights, vector, factor)
        bad = non_finite(found)
        if not bad:
            return found
    what = "gradient" if vector is None else "Hessian's product"
    raise PruningError(f"the {what} of {place} is not finite in tensor {bad[0]!r}")


def _scaled(
    loss: torch.Tensor, weights: Mapping[str, torch.Tensor], vector: Tensors | None, factor: float
) -> Tensors:
    """Differentiate a loss that is scaled meanwhile; its graph is used up by the factor of 1."""
    leaves, twice = list(weights.values()), vector is not None
    grad = partial(torch.autograd.grad, inputs=leaves, allow_unused=True)
    scale, retain = torch.full_like(loss, factor), twice or factor != 1
    found = grad(loss, grad_outputs=scale, retain_graph=retain, create_graph=twice)
    if vector is not None:
        parts = [
            (widened(gradient) * vector[name]).sum().to(loss.device)
            for name, gradient in zip(weights, found, strict=True)
            if gradient is not None and name in vector and gradient.requires_grad
        ]
        if not parts:
            return {}
        product = torch.stack([part.double() for part in parts]).sum()
        found = grad(product, retain_graph=factor != 1)
    return {
        name: widened(part.detach()).div(factor) if factor != 1 else widened(part)
        for name, part in zip(weights, found, strict=True)
        if part is not None
    }


def unit_factor(vector: Mapping[str, torch.Tensor]) -> float:
    """Return the power of two that scales the largest magnitude to [0.5, 1)."""
    top = max((float(part.abs().max()) for part in vector.values() if part.numel()), default=0.0)
    return 2.0 ** -math.frexp(top)[1]


def non_finite(tensors: Mapping[str, torch.Tensor]) -> list[str]:
    """Return the names of the tensors that hold NaN or infinity."""
    flags = [torch.isfinite(tensor).all() for tensor in tensors.values()]
    if not flags:
        return []
    found = torch.stack([flag.to(flags[0].device) for flag in flags]).tolist()
    return [name for name, finite in zip(tensors, found, strict=True) if not finite]


def require_loss(loss: object, place: str, *, needs_grad: bool = True) -> torch.Tensor:
    """Require a loss that is a finite scalar tensor with a gradient."""
    if not isinstance(loss, torch.Tensor):
        raise PruningError(f"the loss of {place} is a {type(loss).__name__}; return a tensor")
    if loss.numel() != 1:
        raise PruningError(f"the loss of {place} has the shape {list(loss.shape)}; return its mean")
    if loss.is_complex():
        raise PruningError(f"the loss of {place} is complex; return its absolute value or the like")
    if needs_grad and not loss.requires_grad:
        raise PruningError(
            f"the loss of {place} has no gradient: it depends on no weight to be pruned, or was "
            "computed under torch.no_grad or by .item()"
        )
    if not torch.isfinite(loss).item():
        raise PruningError(f"the loss of {place} is {loss.item()}; it must be finite")
    return loss
