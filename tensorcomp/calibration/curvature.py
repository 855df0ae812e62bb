"""Measure second moments and row weights, a group of weights at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash
from torch import nn

from tensorcomp._torch_arrays import torch_to_numpy
from tensorcomp.calibration.batches import Batches, OnBatch, samples_of
from tensorcomp.calibration.derivatives import require_loss
from tensorcomp.calibration.kept_groups import KeptGroups
from tensorcomp.calibration.losses import Loss, inputs_and_targets, run
from tensorcomp.calibration.moment_sums import MomentSums
from tensorcomp.calibration.preserve_state import preserve_state
from tensorcomp.calibration.sampled_loss import position_mask, sampled_loss, seed_of
from tensorcomp.calibration.targets import Where, prunable_parameters
from tensorcomp.calibration.weight_uses import WeightUses
from tensorcomp.errors import PruningError
from tensorcomp.planning.statistics import CURVATURE, Statistics, weight_digest

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def measure_curvature(
    model: nn.Module,
    data: Iterable[Any],
    *,
    loss: Loss | None,
    batches: int | None,
    where: Where,
    train_mode: bool,
    progress: OnBatch | None,
    dtype: str,
    memory: int | None,
    seed: int,
    out: Path | None,
    job: str,
) -> Statistics:
    """Measure `CURVATURE`, by a pass over the data for each group of weights.

    See `calibrate` for the parameters. The model is out of its wrappers.

    Raises
    ------
    PruningError
        See `calibrate`.
    """
    if dtype not in DTYPES:
        raise PruningError(f"expected dtype to be one of {', '.join(DTYPES)}, got {dtype}")
    groups = list(_groups(model, matrices(model, where), memory))
    about = job, dtype, seed, train_mode, batches, list(map(list, groups))
    kept = KeptGroups(out, "" if out is None else _digest(model, repr(about)))
    found = kept.load()
    left = groups[len(found) :]
    renorms = any(getattr(module, "max_norm", None) for module in model.modules())
    if left:
        device = next(model.parameters()).device
        passes = Batches(data, batches, device, passes=len(left), on_batch=progress)
        with preserve_state(model, weights=renorms), torch.inference_mode(mode=False):
            model.train(train_mode).requires_grad_(requires_grad=False)
            for group in left:
                minibatches = passes.again() if passes.count else passes
                one = _statistics(_measured(model, group, minibatches, loss, seed), DTYPES[dtype])
                one = replace(one, batches=passes.count, samples=passes.samples)
                found.append(kept.save(len(found), one) if len(groups) > 1 else one)
    joined = replace(reduce(_joined, found), tied=_other_names(model))
    if not joined.arrays["row_weight"]:
        raise PruningError(
            "the loss depends on no matrix of the model, or was computed under torch.no_grad"
        )
    return joined


def _measured(
    model: nn.Module,
    weights: Mapping[str, nn.Parameter],
    minibatches: Iterable[tuple[int, Any]],
    loss: Loss | None,
    seed: int,
) -> MomentSums:
    """Run the model over all minibatches, and sum what a group of weights reads and gives."""
    sums = MomentSums(weights)
    for weight in weights.values():
        weight.requires_grad_()
    for number, batch in minibatches:
        place, uses = f"minibatch {number}", WeightUses(weights)
        mask = position_mask(inputs_and_targets(batch)[0])
        with torch.enable_grad(), uses.listening():
            outputs = loss(model, batch) if loss else run(model, inputs_and_targets(batch)[0])
        sums.others |= uses.others
        sums.add(uses.uses, mask, place)
        with torch.enable_grad():
            total, terms = outputs, samples_of(batch)
            if loss is None:
                total, terms = sampled_loss(outputs, mask, seed_of(seed, number))
            total = require_loss(total, place, needs_grad=False) * (terms if loss else 1)
        sums.terms += terms
        uses.differentiate(total, partial(sums.add_gradient, mask=mask, place=place))
        del outputs, total  # and the graph with all inputs, before there is another
    for weight in weights.values():
        weight.requires_grad_(False)
    return sums


def matrices(model: nn.Module, where: Where = None) -> dict[str, nn.Parameter]:
    """Return the parameters that may be matrices, or those that are named."""
    if where is not None:
        return prunable_parameters(model, where)
    found = {
        name: parameter
        for name, parameter in model.named_parameters()
        if parameter.ndim > 1 and parameter.numel() and parameter.is_floating_point()
    }
    if not found:
        raise PruningError(f"the model, a {type(model).__name__}, has no matrices or kernels")
    return found


def _groups(
    model: nn.Module, weights: Mapping[str, nn.Parameter], memory: int | None
) -> Iterator[dict[str, nn.Parameter]]:
    """Yield weights whose second moments fit in memory together, one at least."""
    group: dict[str, nn.Parameter] = {}
    left = math.inf if memory is None else float(memory)
    for name, weight in weights.items():
        size = _moment_bytes(model.get_submodule(name.rpartition(".")[0]), weight)
        if group and size > left:
            yield group
            group, left = {}, float(memory or 0)
        group[name] = weight
        left -= size
    yield group


def _moment_bytes(module: nn.Module, weight: nn.Parameter) -> int:
    """Return how many bytes the sums of a weight's second moments take at most."""
    item = 8 if weight.device.type == "cpu" else 4
    if isinstance(module, nn.modules.conv._ConvNd):
        return item * module.groups * math.prod(weight.shape[1:]) ** 2
    if isinstance(module, nn.MultiheadAttention):
        return item * 3 * weight.shape[1] ** 2
    plain = isinstance(module, (nn.Linear, nn.Embedding))
    width = weight.shape[1] if plain else max(weight.shape[-2:])
    return item * math.prod(weight.shape[:-2]) * width**2


def _statistics(sums: MomentSums, dtype: torch.dtype) -> Statistics:
    """Return what was measured of a group; equal second moments stand there once."""
    moments: dict[str, np.ndarray] = {}
    rows: dict[str, np.ndarray] = {}
    first: dict[object, str] = {}
    positions: dict[str, int] = {}
    shared: dict[str, str] = {}
    digests: dict[str, str] = {}
    transposed, unreached = [], []
    for name, weight in sums.weights.items():
        one = sums.measured(name)
        if one is None or one.row_weight is None:
            unreached += [] if name in sums.others else [name]
        if one is None:
            continue
        positions[name] = one.positions
        digests[name] = weight_digest(_widened(weight))
        transposed += [name] * one.transposed
        if one.row_weight is not None:
            rows[name] = one.row_weight.float().cpu().numpy()
        if one.source in first:
            shared[name] = first[one.source]
            continue
        first[one.source] = name
        moment = one.moment[0] if len(one.moment) == 1 and weight.ndim == 2 else one.moment
        moments[name] = torch_to_numpy(name, moment.to(dtype))
    arrays = {"second_moment": moments, "row_weight": rows}
    return Statistics(
        arrays,
        unreached=tuple(unreached),
        positions=positions,
        transposed=tuple(transposed),
        shared=shared,
        digests=digests,
    )


def _widened(weight: torch.Tensor) -> np.ndarray:
    weight = weight.detach()
    return torch_to_numpy("", weight if weight.dtype == torch.float64 else weight.float())


def _joined(one: Statistics, other: Statistics) -> Statistics:
    """Return the statistics of two groups."""
    maps: dict[str, Any] = {
        key: {**getattr(one, key), **getattr(other, key)}
        for key in ("positions", "shared", "digests")
    }
    return replace(
        one,
        arrays={key: {**one.arrays.get(key, {}), **other.arrays.get(key, {})} for key in CURVATURE},
        unreached=one.unreached + other.unreached,
        transposed=one.transposed + other.transposed,
        **maps,
    )


def _other_names(model: nn.Module) -> dict[str, str]:
    """Return the first name of each tied parameter by its others."""
    first = {id(parameter): name for name, parameter in model.named_parameters()}
    everything = model.named_parameters(remove_duplicate=False)
    names = {name: first[id(parameter)] for name, parameter in everything}
    return {name: own for name, own in names.items() if name != own}


def _digest(model: nn.Module, about: str) -> str:
    """Return a digest of a model, and of a text that says what is done with it."""
    digest = xxhash.xxh3_64(about.encode())
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(torch_to_numpy(name, tensor).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
