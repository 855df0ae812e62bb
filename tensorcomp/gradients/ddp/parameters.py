"""Describe the parameters of a model whose gradients are compressed."""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import GradientSpec
from tensorcomp.gradients.ddp.buckets import coded_dtype
from tensorcomp.gradients.wrappers.per_role import gradient_roles


def parameters_of(model: DistributedDataParallel, rank: int) -> dict[int, GradientSpec]:
    """Return the specs of trained parameters by the ``id`` of their tensor.

    They are in the model's order. A parameter that several modules share has its first name.

    Raises
    ------
    GradientError
        If one is complex.
    """
    ignored = getattr(model, "parameters_to_ignore", ())
    trained = {
        name: one
        for name, one in model.module.named_parameters()
        if one.requires_grad and name not in ignored
    }
    for name, one in trained.items():
        if one.is_complex():
            raise GradientError(
                f"the parameter {name!r} is {one.dtype}, and gradients of complex parameters "
                "cannot be compressed; make it a pair of real ones (torch.view_as_real)"
            )
    roles = gradient_roles({name: tuple(one.shape) for name, one in trained.items()})
    return {
        id(one): GradientSpec(name, tuple(one.shape), coded_dtype(one.dtype), roles[name], rank)
        for name, one in trained.items()
    }
