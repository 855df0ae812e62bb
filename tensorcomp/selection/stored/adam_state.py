"""Finding Adam's second moments in training checkpoints, and whose they are.

In a torch file, an optimizer's state dict is a dict of ``state`` and ``param_groups``; the model is
what stands beside it. Moments are known by a parameter's name (the keys of ``state``, or
``param_names`` of the groups, which torch stores if the optimizer was given named parameters) or by
a number. Numbers follow the order of the parameters: the j-th moment of a shape is that of the j-th
tensor of that shape, if there are as many of both.

In other files, ``….exp_avg_sq`` or ``exp_avg_sq.…`` around a parameter's name is its moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorcomp.checkpoints.base import Source, TensorInfo
from tensorcomp.codecs.rounding import is_real
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.errors import PruningError
from tensorcomp.selection.stored.matching import match_names
from tensorcomp.selection.stored.optimizer_tree import Place, items_of, object_of
from tensorcomp.selection.stored.tensors import Chosen

MOMENT, STEP = "exp_avg_sq", "step"
_USUAL_BETA = 0.999  # of torch; files without nested objects do not say it
_MODELS = (
    "model",
    "state_dict",
    "model_state_dict",
    "model_state",
    "module",
    "net",
    "network",
    "weights",
    "params",
)
_NEEDED = (
    "the score obd needs the statistic 'fisher': give a file of 'tensorcomp calibrate', or a "
    "training checkpoint that holds Adam's state beside the weights"
)


@dataclass(frozen=True)
class Moment:
    """A second moment.

    Parameters
    ----------
    source : Source
        The file that holds it.
    info : TensorInfo
    step : float or None
        How many steps it is a mean of; None where that is not stored.
    beta : float
        β₂.
    """

    source: Source
    info: TensorInfo
    step: float | None
    beta: float


@dataclass(frozen=True)
class _Entry:
    """A parameter as an optimizer knows it: by name or not, in which group, and its moment."""

    name: str | None
    group: tuple[int, int]
    moment: Moment


@dataclass(frozen=True)
class _Tensor:
    """A tensor that is no optimizer's: where it stands, and whether among others in their order."""

    source: Source
    path: tuple[str, ...]
    info: TensorInfo
    ordered: bool


def moments_of(sources: Sequence[Source], chosen: Sequence[Chosen]) -> dict[str, Moment]:
    """Return the second moments of chosen tensors, by key; none for those that have none.

    Raises
    ------
    PruningError
        If there is no such state at all, or it cannot be told whose a moment is.
    """
    readers = [_Reader(source) for source in sources]
    entries = [entry for number, reader in enumerate(readers) for entry in reader.entries(number)]
    named = {entry.name: entry.moment for entry in entries if entry.name is not None}
    if named:
        own = {item.key: item.names for item in _model(readers, chosen)}
        return {key: named[name] for key, name in match_names(own, named).items()}
    if entries:
        return _by_order(entries, _model_tensors(readers, chosen), chosen)
    flat = {name: moment for source in sources for name, moment in _flat_moments(source)}
    if not flat:
        raise PruningError(_NEEDED)
    own = {item.key: item.names for item in chosen}
    return {key: flat[name] for key, name in match_names(own, flat, exchange=True).items()}


def _by_order(
    entries: Sequence[_Entry], model: Sequence[_Tensor], chosen: Sequence[Chosen]
) -> dict[str, Moment]:
    """Return the moments by the order of equal shapes."""
    keys = {(id(item.source), item.info.name): item.key for item in chosen}
    found = {}
    for shape in dict.fromkeys(item.info.shape for item in chosen):
        tensors = [tensor for tensor in model if _is_like(tensor.info, shape)]
        held = [entry for entry in entries if entry.moment.info.shape == shape]
        wanted = [keys.get((id(tensor.source), tensor.info.name)) for tensor in tensors]
        if not any(wanted) or not held:
            continue
        ordered = all(tensor.ordered for tensor in tensors)
        if len(tensors) != len(held):
            why = f"there are {len(held)} moments for {len(tensors)} tensors"
        elif len(tensors) > 1 and len({entry.group for entry in held}) > 1:
            why = "they are in several groups of parameters, which have their own order"
        elif len(tensors) > 1 and not ordered:
            why = "the file of the weights does not keep the order of the parameters"
        else:
            pairs = zip(wanted, held, strict=True)
            found.update({key: entry.moment for key, entry in pairs if key is not None})
            continue
        raise PruningError(
            f"it cannot be told whose Adam's moments of the shape {list(shape)} are: {why}; store "
            "param_names (torch ≥ 2.6: give the optimizer model.named_parameters()), or give "
            "statistics"
        )
    return found


def _is_like(info: TensorInfo, shape: tuple[int, ...]) -> bool:
    dtype = numpy_dtype(info.dtype)
    return info.shape == shape and dtype is not None and is_real(dtype)


class _Reader:
    """One file: its optimizers, and the tensors that are no part of them."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.infos = {info.name: info for info in source.tensors}
        self.optimizers: list[tuple[tuple[str, ...], Mapping[Any, Any]]] = []
        self.tensors: list[_Tensor] = []
        recipe = source.recipe()
        if recipe.kind == "torch":
            self._walk(object_of(recipe), ())
        else:
            self.tensors = [
                _Tensor(source, (info.name,), info, ordered=False) for info in source.tensors
            ]

    def _walk(self, value: Any, path: tuple[str, ...]) -> None:
        if isinstance(value, Place):
            if value.name in self.infos:
                info = self.infos[value.name]
                self.tensors.append(_Tensor(self.source, path, info, ordered=True))
        elif _is_optimizer(value):
            self.optimizers.append((path, value))
        else:
            for key, item in items_of(value):
                self._walk(item, (*path, key))

    def entries(self, number: int) -> Iterator[_Entry]:
        """Yield the parameters of all optimizers that hold second moments, in their order."""
        optimizers = [value for _, value in self.optimizers if _holds_moments(value)]
        for which, value in enumerate(optimizers):
            for index, group in enumerate(value["param_groups"]):
                names = group.get("param_names") or [None] * len(group["params"])
                for parameter, name in zip(group["params"], names, strict=False):
                    state = value["state"].get(parameter)
                    moment = self._moment(state, group)
                    if moment is not None:
                        known = parameter if isinstance(parameter, str) else name
                        yield _Entry(known, (number << 32 | which, index), moment)

    def _moment(self, state: Any, group: Mapping[Any, Any]) -> Moment | None:
        place = state.get(MOMENT) if isinstance(state, Mapping) else None
        if not isinstance(place, Place) or place.name not in self.infos:
            return None
        step, betas = state.get(STEP), group.get("betas", (0.0, _USUAL_BETA))
        if isinstance(step, Place):
            step = _number(self.source, self.infos[step.name]) if step.name in self.infos else None
        return Moment(self.source, self.infos[place.name], step, float(betas[1]))


def _is_optimizer(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    state, groups = value.get("state"), value.get("param_groups")
    return (
        isinstance(state, Mapping)
        and isinstance(groups, (list, tuple))
        and all(isinstance(group, Mapping) and "params" in group for group in groups)
    )


def _holds_moments(optimizer: Mapping[Any, Any]) -> bool:
    states = optimizer["state"].values()
    return any(isinstance(state, Mapping) and MOMENT in state for state in states)


def _number(source: Source, info: TensorInfo) -> float | None:
    """Return the only element of a tensor, such as a count of steps."""
    dtype = numpy_dtype(info.dtype)
    data = source.read(info.name)
    if dtype is None or data.size != dtype.itemsize:
        return None
    return float(data.view(dtype).astype(np.float64)[0])


def _model(readers: Sequence[_Reader], chosen: Sequence[Chosen]) -> list[Chosen]:
    """Return the chosen tensors that are the model's, and not an average of it, say."""
    own = {(id(item.source), item.info.name) for item in _model_tensors(readers, chosen)}
    return [item for item in chosen if (id(item.source), item.info.name) in own]


def _model_tensors(readers: Sequence[_Reader], chosen: Sequence[Chosen]) -> list[_Tensor]:
    """Return the tensors of the model to which the optimizer belongs: of what stands beside it."""
    wanted = {(id(item.source), item.info.name) for item in chosen}
    parts: dict[tuple[object, ...], list[_Tensor]] = {}
    for reader in readers:
        near = [path for path, value in reader.optimizers if _holds_moments(value)]
        for tensor in reader.tensors:
            parts.setdefault(_part(tensor.path, near), []).append(tensor)
    holding = {
        part: tensors
        for part, tensors in parts.items()
        if any((id(tensor.source), tensor.info.name) in wanted for tensor in tensors)
    }
    usual = {part: tensors for part, tensors in holding.items() if part and part[-1] in _MODELS}
    found = usual if len(holding) > 1 and usual else holding
    if not found:
        return []
    if len(found) > 1:
        names = ", ".join(repr(".".join(map(str, part))) for part in found)
        raise PruningError(
            f"it cannot be told to which part of the checkpoint the optimizer belongs: {names}; "
            "choose one by 'where' (--prune-where)"
        )
    return next(iter(found.values()))


def _part(path: tuple[str, ...], optimizers: Sequence[tuple[str, ...]]) -> tuple[object, ...]:
    """Return what a tensor is a part of, as seen from the optimizer that is nearest to it."""
    if not optimizers:
        return ()  # another file: all of it, and all such files together
    shared = max(_shared(path, optimizer) for optimizer in optimizers)
    return path[: shared + 1] if len(path) > shared + 1 else path[:shared]


def _shared(path: tuple[str, ...], other: tuple[str, ...]) -> int:
    """Return how many steps two paths have in common from the root on."""
    count = 0
    while count < min(len(path), len(other)) and path[count] == other[count]:
        count += 1
    return count


def _flat_moments(source: Source) -> Iterator[tuple[str, Moment]]:
    """Yield the moments of a file without nested objects, by what their names hold beside that."""
    infos = {info.name: info for info in source.tensors}
    for name, info in infos.items():
        parts = name.split(".")
        if MOMENT not in parts:
            continue
        place = parts.index(MOMENT)
        step = infos.get(".".join([*parts[:place], STEP, *parts[place + 1 :]]))
        number = None if step is None else _number(source, step)
        rest = ".".join(parts[:place] + parts[place + 1 :])
        yield rest, Moment(source, info, number, _USUAL_BETA)
