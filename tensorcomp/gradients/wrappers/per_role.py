"""Send norms, biases, scales, routers and small tensors dense."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.codecs.arguments import argument
from tensorcomp.gradients.base import Compressor, GradientSpec, StepInfo
from tensorcomp.gradients.compressors.dense import Dense
from tensorcomp.gradients.wrappers.schedules import Scheduler
from tensorcomp.planning.roles.classify import check_selector, classify, have_role, roles_of

DENSE_ROLES = ("norm", "bias", "scale", "router")


@dataclass(frozen=True)
class PerRole(Scheduler):
    """Send small tensors and those of some roles dense, within wrappers.

    Such tensors are a thousandth of most models, and errors in them hurt most.

    Parameters
    ----------
    inner : Compressor
        For all others.
    small : int
        A tensor of fewer elements is sent dense.
    dense_roles : tuple of str
        Roles, or selectors of several, as `planning.roles` lists them. A tensor whose spec has no
        role has the one inferred from its name and shape.

    Raises
    ------
    ValueError
        If `small` is out of range.
    PlanError
        If a role is unknown.
    """

    id: ClassVar[str] = "per_role"
    inner: Compressor
    small: int = argument(4096, least=0)
    dense_roles: tuple[str, ...] = DENSE_ROLES

    def __post_init__(self) -> None:
        super().__post_init__()
        for role in self.dense_roles:
            check_selector(role)

    def text(self) -> str:
        """Return the inner compressor's text, and what is dense."""
        roles = json.dumps(" ".join(self.dense_roles))
        return f"per_role({self.inner.text()}, small={self.small}, dense_roles={roles})"

    def leaf_at(self, leaf: Compressor, info: StepInfo, spec: GradientSpec) -> Compressor:
        """Return `Dense` for small tensors and those of some roles."""
        is_dense = spec.size < self.small or _has_role(spec, self.dense_roles)
        return Dense() if is_dense else leaf


def gradient_roles(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, str]:
    """Classify the parameters of a model by role.

    Parameters
    ----------
    shapes : mapping of str to tuple of int
        By name.

    Returns
    -------
    dict of str to str
        For `GradientSpec.role`.
    """
    infos = [TensorInfo(name, "F32", shape, 4 * math.prod(shape)) for name, shape in shapes.items()]
    return roles_of(infos)


@functools.lru_cache(maxsize=4096)
def _has_role(spec: GradientSpec, selectors: tuple[str, ...]) -> bool:
    role = spec.role or classify(spec.name, "F32", spec.shape)
    return have_role(selectors, role)
