"""Score by Adam's second moment in a training checkpoint.

The moment is a running mean of squared gradients; divided by 1 − β₂ᵗ, t the step, it is without
bias (Kingma & Ba 2015, "Adam: a method for stochastic optimization"). Which moment is whose follows
from the parameters' names where the checkpoint holds them, else from their order: the j-th moment
of a shape is that of the j-th tensor of that shape, if there are as many of both.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tensorcomp._formatting import shown
from tensorcomp._names import match_names
from tensorcomp.checkpoints.base import Checkpoint, TensorInfo
from tensorcomp.codecs.rounding import is_real
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.errors import PruningError
from tensorcomp.planning.statistics import Statistics
from tensorcomp.selection.scores.base import widened
from tensorcomp.selection.scores.measured import OptimalBrainDamage
from tensorcomp.selection.stored.adam_state import Moment, TrainingFile
from tensorcomp.selection.stored.tensors import Chosen

_MODELS = {"model", "state_dict", "model_state_dict", "model_state", "module", "net", "network"}
_MODELS |= {"weights", "params"}


@dataclass(frozen=True)
class StoredDamage(OptimalBrainDamage):
    """Score ½ · h · w², with h from Adam's stored moments.

    Moments stay views of the file.
    """

    factors: Mapping[str, float] = field(default_factory=dict)  # 1 / (1 − β₂ᵗ) of each tensor

    def __str__(self) -> str:
        """Return the score's text."""
        return self.id

    def score(
        self, weights: np.ndarray, statistic: np.ndarray | None, *, name: str, start: int = 0
    ) -> np.ndarray:
        """Return the scores, float64."""
        assert statistic is not None
        scores = super().score(weights, widened(statistic), name=name, start=start)
        scores *= self.factors[name]
        return scores


def second_moments(
    sources: Sequence[Checkpoint], chosen: Sequence[Chosen], *, all_of_them: bool
) -> tuple[StoredDamage, Statistics]:
    """Return score and statistics from the optimizer that is stored with tensors.

    Tensors without a moment are left out, or refused where `all_of_them` must have one.
    """
    moments = _moments_of(sources, chosen)
    missing = [item for item in chosen if item.key not in moments]
    if (missing and all_of_them) or not moments:
        first = (missing or list(chosen))[0]
        raise PruningError(
            f"tensor {shown(first.key)} has no second moment of Adam's in the checkpoint; leave it "
            "out by 'where', or give stats=…"
        )
    found = [item for item in chosen if item.key in moments]
    arrays = {item.key: _read(item, moments[item.key]) for item in found}
    factors = {key: _factor(key, moments[key]) for key in arrays}
    return StoredDamage(factors), Statistics({OptimalBrainDamage.statistic: arrays})


def _read(item: Chosen, moment: Moment) -> np.ndarray:
    info, dtype = moment.info, numpy_dtype(moment.info.dtype)
    if info.shape != item.info.shape or dtype is None:
        raise PruningError(
            f"tensor {shown(item.key)} has the shape {list(item.info.shape)}, its second moment "
            f"{info.dtype} {list(info.shape)}: it is of another model"
        )
    return moment.source.read(info.name).view(dtype).reshape(info.shape)


def _factor(key: str, moment: Moment) -> float:
    if moment.step is None:
        return 1.0
    kept = 1 - moment.beta**moment.step if 0 <= moment.beta < 1 and moment.step >= 1 else math.nan
    if not kept > 0:
        raise PruningError(
            f"tensor {key!r}: Adam's step is {moment.step:g} and its β₂ {moment.beta:g}, which "
            "give no second moment; give stats=…"
        )
    return 1 / kept


@dataclass(frozen=True)
class _Tensor:
    """A tensor outside all optimizers."""

    info: TensorInfo
    item: Chosen | None
    ordered: bool


def _moments_of(sources: Sequence[Checkpoint], chosen: Sequence[Chosen]) -> dict[str, Moment]:
    """Return the second moments of chosen tensors, by key."""
    files = [TrainingFile(source) for source in sources]
    nested = [moment for file in files for moment in file.moments()]
    moments = nested or [moment for file in files for moment in file.flat_moments()]
    if not moments:
        raise PruningError(
            "the score obd needs the statistic 'fisher': give stats=…, a file of tensorcomp "
            "calibrate, or a training checkpoint that holds Adam's state beside the weights"
        )
    model = _model(files, chosen)
    named = {moment.name: moment for moment in moments if moment.name is not None}
    if not named:
        return _by_order(moments, model)
    own = {tensor.item.key for tensor in model if tensor.item}
    names = {item.key: item.names for item in chosen if item.key in own}
    pairs = match_names(names, named, exchange=not nested)
    return {key: named[name] for key, name in pairs.items()}


def _by_order(moments: Sequence[Moment], model: Sequence[_Tensor]) -> dict[str, Moment]:
    """Match moments to tensors of equal shape by their order."""
    found = {}
    for shape in dict.fromkeys(tensor.info.shape for tensor in model if tensor.item):
        tensors = [tensor for tensor in model if _is_like(tensor.info, shape)]
        held = [moment for moment in moments if moment.info.shape == shape]
        if not held:
            continue
        why = ""
        if len(tensors) != len(held):
            why = f"there are {len(held)} moments for {len(tensors)} tensors"
        elif len(tensors) > 1 and len({moment.group for moment in held}) > 1:
            why = "they are in several groups of parameters, which have their own order"
        elif len(tensors) > 1 and not all(tensor.ordered for tensor in tensors):
            why = "the file of the weights does not keep the order of the parameters"
        if why:
            raise PruningError(
                f"Adam's moments of the shape {list(shape)} are ambiguous: {why}; store "
                "param_names (torch ≥ 2.6: give the optimizer model.named_parameters()), or give "
                "stats=…"
            )
        pairs = zip(tensors, held, strict=True)
        found.update({tensor.item.key: moment for tensor, moment in pairs if tensor.item})
    return found


def _is_like(info: TensorInfo, shape: tuple[int, ...]) -> bool:
    dtype = numpy_dtype(info.dtype)
    return info.shape == shape and dtype is not None and is_real(dtype)


def _model(files: Sequence[TrainingFile], chosen: Sequence[Chosen]) -> Sequence[_Tensor]:
    """Return the tensors of the model that stands beside the optimizer."""
    items = {(id(item.source), item.info.name): item for item in chosen}
    parts: dict[tuple[str, ...], list[_Tensor]] = {}
    for file in files:
        optimizers = [path for path, _ in file.optimizers]
        for path, info in file.tensors:
            tensor = _Tensor(info, items.get((id(file.source), info.name)), file.is_nested)
            parts.setdefault(_part(path, optimizers), []).append(tensor)
    holding = {part: own for part, own in parts.items() if any(tensor.item for tensor in own)}
    usual = {part: own for part, own in holding.items() if part and part[-1] in _MODELS}
    found = usual if len(holding) > 1 and usual else holding
    if len(found) > 1:
        names = ", ".join(repr(".".join(part)) for part in found)
        raise PruningError(
            f"the part of the checkpoint that the optimizer belongs to is ambiguous: {names}; "
            "choose one by 'where'"
        )
    return next(iter(found.values()), [])


def _part(path: tuple[str, ...], optimizers: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the path of the part that a tensor shares with no optimizer."""
    if not optimizers:
        return ()  # another file: all of it, and all such files together
    pairs = (zip(path, other, strict=False) for other in optimizers)
    shared = max(len(list(itertools.takewhile(lambda both: both[0] == both[1], p))) for p in pairs)
    return path[: shared + 1] if len(path) > shared + 1 else path[:shared]
