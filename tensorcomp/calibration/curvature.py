"""Measure second moments and row weights, a group of weights at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
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
    kept = KeptGroups(out, f"{about} {_digests(model)}") if out and len(groups) > 1 else None
    found = kept.load() if kept else []
    left = groups[len(found) :]
    renorms = any(getattr(module, "max_norm", None) for module in model.modules())
    if left:
        device = next(model.parameters()).device
        passes = Batches(data, batches, device, passes=len(left), on_batch=progress)
        with preserve_state(model, weights=renorms), torch.inference_mode(mode=False):
            model.train(train_mode)
            for group in left:
                minibatches = passes.again() if passes.count else passes
                sums = _summed(model, group, minibatches, loss, seed)
                each = [_of_weight(sums, name, DTYPES[dtype]) for name in group]
                one = _joined(each, passes.count, passes.samples)
                found.append(kept.save(len(found), one) if kept else one)
    joined = _joined(found, found[0].batches, found[0].samples)
    if not joined.arrays["row_weight"]:
        raise PruningError(
            "the loss depends on no matrix of the model, or was computed under torch.no_grad"
        )
    return replace(_shared(joined), tied=_other_names(model))


def _summed(
    model: nn.Module,
    weights: Mapping[str, nn.Parameter],
    minibatches: Iterable[tuple[int, Any]],
    loss: Loss | None,
    seed: int,
) -> MomentSums:
    """Run the model over all minibatches, and sum what a group of weights reads and gives."""
    model.requires_grad_(requires_grad=False)
    for weight in weights.values():
        weight.requires_grad_()
    sums = MomentSums(weights)
    for number, batch in minibatches:
        place, inputs = f"minibatch {number}", inputs_and_targets(batch)[0]
        mask = position_mask(inputs)
        with torch.enable_grad():
            with sums.listening(mask, place):
                outputs = loss(model, batch) if loss else run(model, inputs)
            total, terms = outputs, samples_of(batch)
            if loss is None:
                total, terms = sampled_loss(outputs, mask, seed_of(seed, number))
            total = require_loss(total, place, needs_grad=False) * (terms if loss else 1)
        sums.differentiate(total, terms)
        del outputs, total  # and the graph, before there is another
    return sums


def matrices(model: nn.Module, where: Where = None) -> dict[str, nn.Parameter]:
    """Return the parameters that may be matrices, or those that are named."""
    if where is not None:
        return prunable_parameters(model, where)
    named = model.named_parameters()
    found = {n: p for n, p in named if p.ndim > 1 and p.numel() and p.is_floating_point()}
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
    blocks, width = math.prod(weight.shape[:-2]), max(weight.shape[-2:])
    if isinstance(module, nn.modules.conv._ConvNd):
        blocks, width = module.groups, math.prod(weight.shape[1:])
    elif isinstance(module, nn.MultiheadAttention):
        blocks, width = 3, weight.shape[1]
    elif isinstance(module, (nn.Linear, nn.Embedding)):
        width = weight.shape[1]
    return (8 if weight.device.type == "cpu" else 4) * blocks * width**2


def _of_weight(sums: MomentSums, name: str, dtype: torch.dtype) -> Statistics:
    """Return what was measured of a weight."""
    one, weight = sums.measured(name), sums.weights[name]
    if one is None:
        return Statistics({}, unreached=() if name in sums.others else (name,))
    moment = one.moment[0] if len(one.moment) == 1 and weight.ndim == 2 else one.moment
    return Statistics(
        {
            "second_moment": {name: torch_to_numpy(name, moment.to(dtype))},
            "row_weight": {name: one.row_weight.float().cpu().numpy()},
        },
        positions={name: one.positions},
        transposed=(name,) * one.transposed,
        digests={name: weight_digest(torch_to_numpy(name, weight))},
    )


def _joined(parts: Sequence[Statistics], batches: int, samples: int) -> Statistics:
    """Return the statistics of several weights, or of several groups of them."""
    lists, maps = ("unreached", "transposed"), ("positions", "digests")
    fields: dict[str, Any] = {key: _merged(getattr(part, key) for part in parts) for key in maps}
    fields |= {key: tuple(name for part in parts for name in getattr(part, key)) for key in lists}
    arrays = {key: _merged(part.arrays.get(key, {}) for part in parts) for key in CURVATURE}
    return Statistics(arrays, batches, samples, **fields)


def _merged(maps: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return dict(itertools.chain.from_iterable(one.items() for one in maps))


def _shared(found: Statistics) -> Statistics:
    """Return statistics with equal second moments once: of weights that read the same."""
    first: dict[object, str] = {}
    shared = {}
    for name, moment in found.arrays["second_moment"].items():
        values = xxhash.xxh3_128_digest(moment.reshape(-1).view(np.uint8).data)
        if (same := first.setdefault((moment.shape, values), name)) != name:
            shared[name] = same
    moments = {name: found.arrays["second_moment"][name] for name in first.values()}
    return replace(found, arrays={**found.arrays, "second_moment": moments}, shared=shared)


def _other_names(model: nn.Module) -> dict[str, str]:
    """Return the first name of each tied parameter by its others."""
    first = {id(parameter): name for name, parameter in model.named_parameters()}
    everything = model.named_parameters(remove_duplicate=False)
    return {name: first[id(each)] for name, each in everything if name != first[id(each)]}


def _digests(model: nn.Module) -> list[tuple[str, str, str]]:
    """Return the names, dtypes and digests of all that a model holds."""
    held = (*model.named_parameters(), *model.named_buffers())
    return [(n, str(one.dtype), weight_digest(torch_to_numpy(n, one))) for n, one in held]
