"""Find Adam's second moments in training checkpoints, and whose they are.

In a torch file, an optimizer's state dict is a dict of ``state`` and ``param_groups``; the model is
what stands beside it. Moments are known by a parameter's name (the keys of ``state``, or
``param_names`` of the groups, which torch stores if the optimizer was given named parameters) or by
a number. Numbers follow the order of the parameters: the j-th moment of a shape is that of the j-th
tensor of that shape, if there are as many of both.

In other files, ``….exp_avg_sq`` or ``exp_avg_sq.…`` around a parameter's name is its moment.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensorcomp.checkpoints.base import Checkpoint, SourceTemplate, TensorInfo
from tensorcomp.checkpoints.layouts.torch_tree_decoder import TreeDecoder
from tensorcomp.checkpoints.packing import unpack_structure
from tensorcomp.codecs.rounding import is_real
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.errors import PruningError
from tensorcomp.selection.stored.matching import match_names
from tensorcomp.selection.stored.tensors import Chosen

MOMENT, STEP = "exp_avg_sq", "step"
_USUAL_BETA = 0.999  # of torch; files without nested objects do not say it
_MODELS = {"model", "state_dict", "model_state_dict", "model_state", "module", "net", "network"}
_MODELS |= {"weights", "params"}


@dataclass(frozen=True)
class Moment:
    """A second moment.

    Parameters
    ----------
    name : str or None
        The parameter's, if it is stored.
    group : int
        Equal for parameters of one group, which are in their order.
    source : Checkpoint
        The file that holds it.
    info : TensorInfo
    step : float or None
        How many steps it is a mean of; None where that is not stored.
    beta : float
        β₂.
    """

    name: str | None
    group: int
    source: Checkpoint
    info: TensorInfo
    step: float | None
    beta: float


@dataclass(frozen=True)
class _Tensor:
    """A tensor outside all optimizers, by its path in the file."""

    source: Checkpoint
    path: tuple[str, ...]
    info: TensorInfo
    ordered: bool

    def is_one_of(self, chosen: Mapping[tuple[int, str], Chosen]) -> bool:
        return (id(self.source), self.info.name) in chosen


def moments_of(sources: Sequence[Checkpoint], chosen: Sequence[Chosen]) -> dict[str, Moment]:
    """Find the second moments of chosen tensors, by key.

    Raises
    ------
    PruningError
        If there is no such state at all, or it is ambiguous whose a moment is.
    """
    files = [_File.of(source) for source in sources]
    nested = [moment for file in files for moment in file.moments()]
    moments = nested or [moment for file in files for moment in file.flat_moments()]
    if not moments:
        raise PruningError(
            "the score obd needs the statistic 'fisher': give a file of 'tensorcomp calibrate', or "
            "a training checkpoint that holds Adam's state beside the weights"
        )
    items = {(id(item.source), item.info.name): item for item in chosen}
    model = _model(files, items)
    named = {moment.name: moment for moment in moments if moment.name is not None}
    if not named:
        return _by_order(moments, model, items)
    own = {id(items[id(t.source), t.info.name]) for t in model if t.is_one_of(items)}
    names = {item.key: item.names for item in chosen if id(item) in own}
    pairs = match_names(names, named, exchange=not nested)
    return {key: named[name] for key, name in pairs.items()}


def _by_order(
    moments: Sequence[Moment],
    model: Sequence[_Tensor],
    items: Mapping[tuple[int, str], Chosen],
) -> dict[str, Moment]:
    """Match moments to tensors of equal shape by their order."""
    found = {}
    for shape in dict.fromkeys(item.info.shape for item in items.values()):
        tensors = [tensor for tensor in model if _is_like(tensor.info, shape)]
        held = [moment for moment in moments if moment.info.shape == shape]
        if not held or not any(tensor.is_one_of(items) for tensor in tensors):
            continue
        if len(tensors) != len(held):
            why = f"there are {len(held)} moments for {len(tensors)} tensors"
        elif len(tensors) > 1 and len({moment.group for moment in held}) > 1:
            why = "they are in several groups of parameters, which have their own order"
        elif len(tensors) > 1 and not all(tensor.ordered for tensor in tensors):
            why = "the file of the weights does not keep the order of the parameters"
        else:
            for tensor, moment in zip(tensors, held, strict=True):
                if tensor.is_one_of(items):
                    found[items[id(tensor.source), tensor.info.name].key] = moment
            continue
        raise PruningError(
            f"Adam's moments of the shape {list(shape)} are ambiguous: {why}; store "
            "param_names (torch ≥ 2.6: give the optimizer model.named_parameters()), or give "
            "statistics"
        )
    return found


def _is_like(info: TensorInfo, shape: tuple[int, ...]) -> bool:
    dtype = numpy_dtype(info.dtype)
    return info.shape == shape and dtype is not None and is_real(dtype)


def _model(files: Sequence[_File], items: Mapping[tuple[int, str], Chosen]) -> Sequence[_Tensor]:
    """Return the tensors of the model that stands beside the optimizer."""
    parts: dict[tuple[str, ...], list[_Tensor]] = {}
    for file in files:
        for tensor in file.tensors:
            parts.setdefault(_part(tensor.path, file.optimizers), []).append(tensor)
    holding = {
        part: tensors
        for part, tensors in parts.items()
        if any(tensor.is_one_of(items) for tensor in tensors)
    }
    usual = {part: tensors for part, tensors in holding.items() if part and part[-1] in _MODELS}
    found = usual if len(holding) > 1 and usual else holding
    if len(found) > 1:
        names = ", ".join(repr(".".join(part)) for part in found)
        raise PruningError(
            f"the part of the checkpoint that the optimizer belongs to is ambiguous: {names}; "
            "choose one by 'where' (--prune-where)"
        )
    return next(iter(found.values()), [])


def _part(
    path: tuple[str, ...], optimizers: Sequence[tuple[tuple[str, ...], Any]]
) -> tuple[str, ...]:
    """Return the path of the part that a tensor shares with no optimizer."""
    if not optimizers:
        return ()  # another file: all of it, and all such files together
    pairs = (zip(path, other, strict=False) for other, _ in optimizers)
    shared = max(len(list(itertools.takewhile(lambda both: both[0] == both[1], p))) for p in pairs)
    return path[: shared + 1] if len(path) > shared + 1 else path[:shared]


@dataclass(frozen=True)
class _Place:
    """A tensor in a torch file: its name; None if it shares memory."""

    name: str | None


class _PlaceDecoder(TreeDecoder):
    """Builds nested objects with a `_Place` for each tensor."""

    def _decode_tensor(self, node: dict[str, Any]) -> Any:
        self._decode_pairs(node.get("attributes", []))  # what they hold is numbered too
        return self.tensor_at(node["tensor"])


def _object_of(template: SourceTemplate) -> Any:
    """Return the object of a torch file, with a `_Place` for each tensor."""
    structure = unpack_structure(template)
    leaves = structure["leaves"]
    return _PlaceDecoder(lambda leaf: _Place(leaves[leaf].get("name"))).decode(structure["tree"])


@dataclass(frozen=True)
class _File:
    """One file: its optimizers with moments, and its other tensors."""

    source: Checkpoint
    infos: Mapping[str | None, TensorInfo]
    optimizers: list[tuple[tuple[str, ...], Mapping[Any, Any]]] = field(default_factory=list)
    tensors: list[_Tensor] = field(default_factory=list)

    @classmethod
    def of(cls, source: Checkpoint) -> _File:
        file = cls(source, {info.name: info for info in source.tensors})
        template = source.template()
        if template.kind == "torch":
            file._walk(_object_of(template), ())
        else:
            for info in source.tensors:
                file.tensors.append(_Tensor(source, (info.name,), info, ordered=False))
        return file

    def _walk(self, value: Any, path: tuple[str, ...]) -> None:
        if isinstance(value, _Place):
            if value.name in self.infos:
                info = self.infos[value.name]
                self.tensors.append(_Tensor(self.source, path, info, ordered=True))
        elif _is_optimizer(value):
            states = value["state"].values()
            if any(isinstance(state, Mapping) and MOMENT in state for state in states):
                self.optimizers.append((path, value))
        elif isinstance(value, (Mapping, list, tuple)):
            for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
                self._walk(item, (*path, str(key)))

    def moments(self) -> Iterator[Moment]:
        """Yield the moments of all optimizers, in the order of their parameters."""
        for _, optimizer in self.optimizers:
            for group in optimizer["param_groups"]:
                beta = float(group.get("betas", (0.0, _USUAL_BETA))[1])
                names = group.get("param_names") or [None] * len(group["params"])
                for parameter, name in zip(group["params"], names, strict=False):
                    state = optimizer["state"].get(parameter)
                    place = state.get(MOMENT) if isinstance(state, Mapping) else None
                    if isinstance(place, _Place) and place.name in self.infos:
                        known = parameter if isinstance(parameter, str) else name
                        step, info = state.get(STEP), self.infos[place.name]
                        if isinstance(step, _Place):
                            step = self._number(step.name)
                        yield Moment(known, id(group), self.source, info, step, beta)

    def flat_moments(self) -> Iterator[Moment]:
        """Yield the moments of a file without nested objects, by their names."""
        for info in self.infos.values():
            before, found, after = f".{info.name}.".partition(f".{MOMENT}.")
            if found:
                step = self._number(f"{before}.{STEP}.{after}"[1:-1])
                rest = f"{before}.{after}".strip(".")
                yield Moment(rest, 0, self.source, info, step, _USUAL_BETA)

    def _number(self, name: str | None) -> float | None:
        """Return the only element of a tensor, such as a step; None without one."""
        info = self.infos.get(name)
        dtype = None if info is None else numpy_dtype(info.dtype)
        if info is None or dtype is None or info.nbytes != dtype.itemsize:
            return None
        return float(self.source.read(info.name).view(dtype).astype(np.float64)[0])


def _is_optimizer(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    groups = value.get("param_groups")
    return (
        isinstance(value.get("state"), Mapping)
        and isinstance(groups, (list, tuple))
        and all(isinstance(group, Mapping) and "params" in group for group in groups)
    )
