"""Read Adam's second moments, and the other tensors, from checkpoints.

In a torch file, an optimizer's state dict is a dict of ``state`` and ``param_groups``; the model is
what stands beside it. Moments are known by a parameter's name (the keys of ``state``, or
``param_names`` of the groups, which torch stores if the optimizer was given named parameters) or by
a number, which follows the order of the parameters.

In other files, ``….exp_avg_sq`` or ``exp_avg_sq.…`` around a parameter's name is its moment.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from types import UnionType
from typing import Any

import numpy as np

from tensorcomp._formatting import shown
from tensorcomp.checkpoints.base import Checkpoint, TensorInfo
from tensorcomp.checkpoints.layouts.layout import LayoutCheckpoint
from tensorcomp.checkpoints.layouts.torch_tensors import StoredTensor
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.errors import CheckpointError

MOMENT, STEP = "exp_avg_sq", "step"
_MAX_DEPTH = 50  # of nested objects in which optimizers and models are looked for
_USUAL_BETA = 0.999  # of torch; files without nested objects do not say it


@dataclass(frozen=True)
class Moment:
    """A second moment in a file: the running mean, by β₂, of some steps."""

    name: str | None  # the parameter's, if it is stored
    group: int  # equal for parameters of one group, which are in their order
    source: Checkpoint
    info: TensorInfo
    step: float | None  # None where it is not stored
    beta: float


class TrainingFile:
    """File of a training checkpoint: optimizers with moments, other tensors.

    Both have their paths in the file. Where its objects are nested, tensors are in the order of the
    parameters.
    """

    def __init__(self, source: Checkpoint) -> None:
        self.source = source
        self.tensors: list[tuple[tuple[str, ...], TensorInfo]] = []
        self.optimizers: list[tuple[tuple[str, ...], Mapping[Any, Any]]] = []
        self._infos = {info.name: info for info in source.tensors}
        objects = source.objects if isinstance(source, LayoutCheckpoint) else None
        self.is_nested = objects is not None
        if objects is None:
            self.tensors = [((info.name,), info) for info in source.tensors]
            return
        known = {tensor: self._infos[name] for tensor, name in objects.names.items()}
        for path, value in _walk(_with_infos(objects.root, known), ()):
            if isinstance(value, TensorInfo):
                self.tensors.append((path, value))
            elif _holds_moments(value):
                self.optimizers.append((path, value))

    def moments(self) -> Iterator[Moment]:
        """Yield the moments of all optimizers, in the order of their parameters."""
        for _, optimizer in self.optimizers:
            for group in optimizer["param_groups"]:
                betas = group.get("betas", (0.0, _USUAL_BETA))
                if not isinstance(betas, (list, tuple)) or len(betas) < 2:
                    raise self._fault("betas", "two numbers", betas)
                beta = self._real("betas", betas[1])
                parameters = self._keys("params", group["params"], int | str)
                names = self._keys("param_names", group.get("param_names") or (), str)
                for parameter, name in itertools.zip_longest(parameters, names):
                    state = optimizer["state"].get(parameter)
                    info = state.get(MOMENT) if isinstance(state, Mapping) else None
                    if isinstance(info, TensorInfo):
                        known = parameter if isinstance(parameter, str) else name
                        step = state.get(STEP)
                        if isinstance(step, TensorInfo):
                            step = self._number(step)
                        elif step is not None:
                            step = self._real(STEP, step)
                        yield Moment(known, id(group), self.source, info, step, beta)

    def flat_moments(self) -> Iterator[Moment]:
        """Yield the moments of a file without nested objects, by their names."""
        for info in self._infos.values():
            before, found, after = f".{info.name}.".partition(f".{MOMENT}.")
            if found:
                step = self._infos.get(f"{before}.{STEP}.{after}"[1:-1])
                name = f"{before}.{after}".strip(".")
                yield Moment(name, 0, self.source, info, self._number(step), _USUAL_BETA)

    def _keys(self, field: str, value: Any, kind: type | UnionType) -> Sequence[Any]:
        """Return the numbers or names of a group's parameters."""
        if isinstance(value, (list, tuple)) and all(isinstance(key, kind) for key in value):
            return value
        expected = "names" if kind is str else "numbers or names"
        raise self._fault(field, f"a list of {expected}", value)

    def _real(self, field: str, value: Any) -> float:
        if isinstance(value, Real):
            with contextlib.suppress(OverflowError):
                return float(value)
        raise self._fault(field, "a number", value)

    def _fault(self, field: str, expected: str, value: Any) -> CheckpointError:
        return CheckpointError(
            f"expected {field!r} of the optimizer to be {expected}, got {shown(value)}; "
            "give stats=…",
            path=self.source.path,
        )

    def _number(self, info: TensorInfo | None) -> float | None:
        """Return the only element of a tensor, such as a step; None without one."""
        dtype = None if info is None else numpy_dtype(info.dtype)
        if info is None or dtype is None or info.nbytes != dtype.itemsize:
            return None
        return float(self.source.read(info.name).view(dtype).astype(np.float64)[0])


def _with_infos(value: Any, known: Mapping[StoredTensor, TensorInfo], depth: int = 0) -> Any:
    """Return nested objects with a `TensorInfo` in the place of each tensor.

    None stands for a tensor that shares the memory of another.
    """
    if isinstance(value, StoredTensor):
        return known.get(value)
    if depth == _MAX_DEPTH:
        return None
    if isinstance(value, dict):
        return {key: _with_infos(item, known, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_infos(item, known, depth + 1) for item in value]
    return value


def _walk(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield optimizers, and the tensors outside them, with their paths."""
    if isinstance(value, TensorInfo) or _is_optimizer(value):
        yield path, value
    elif isinstance(value, (Mapping, list, tuple)):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _walk(item, (*path, str(key)))


def _is_optimizer(value: Any) -> bool:
    if not isinstance(value, Mapping) or not isinstance(value.get("state"), Mapping):
        return False
    groups = value.get("param_groups")
    return isinstance(groups, (list, tuple)) and all(
        isinstance(group, Mapping) and "params" in group for group in groups
    )


def _holds_moments(optimizer: Mapping[str, Any]) -> bool:
    states = optimizer["state"].values()
    return any(isinstance(state, Mapping) and MOMENT in state for state in states)
