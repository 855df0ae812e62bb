"""Describe the parameters of a model whose gradients are compressed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from torch.nn.parallel import DistributedDataParallel

from tensorcomp.errors import GradientError
from tensorcomp.gradients.ddp.buckets import coded_dtype
from tensorcomp.gradients.monitoring.metrics import TensorMetrics
from tensorcomp.gradients.wrappers.per_role import gradient_roles


@dataclass(frozen=True)
class Parameter:
    """Describe a parameter of the model.

    Parameters
    ----------
    name : str
    shape : tuple of int
    dtype : numpy.dtype
        In which its gradients are coded.
    role : str
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    role: str = ""

    @property
    def line(self) -> str:
        """Return what ranks must have alike."""
        return f"{self.name}{list(self.shape)} of {self.dtype}"

    @property
    def size(self) -> int:
        """Return its elements."""
        return math.prod(self.shape)

    def plain_metrics(self) -> TensorMetrics:
        """Return the metrics of a step in which its gradient is sent as it is."""
        nbytes = self.size * self.dtype.itemsize
        return TensorMetrics(self.name, self.size, "dense", nbytes, nbytes, self.size)


def parameters_of(model: DistributedDataParallel) -> dict[int, Parameter]:
    """Return trained parameters by the ``id`` of their tensor, in order.

    A parameter that several modules share has its first name.

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
        id(one): Parameter(name, tuple(one.shape), coded_dtype(one.dtype), roles[name])
        for name, one in trained.items()
    }
