"""How many weights are pruned, and how many were asked for: tensorcomp beside its peers.

Everything is counted in what comes out: masks of weights, units that are left.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.utils import prune as torch_prune

from benchmarks.common.reporting import ABSENT, Sheet
from tensorcomp.pruning import PruningResult, prune

SPARSITY = 0.9
ASKED = 900  # of 1000
SEED = 0
LARGEST = 8  # of the grid of integers

Pruner = Callable[[nn.Module], int]


@dataclass(frozen=True)
class ExactRow:
    """Weights pruned of 1,000 where 900 were asked for; None where a pruner cannot do it."""

    what: str
    asked: int
    pruned: Mapping[str, int | None]


def _layers(*shapes: tuple[int, int]) -> nn.Module:
    return nn.Sequential(*(nn.Linear(columns, rows, bias=False) for rows, columns in shapes))


def filled(model: nn.Module, kind: str) -> nn.Module:
    """Fill a model's weights: Gaussian, all equal, integers, or half of them zero."""
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for weight in model.parameters():
            if kind == "equal":
                weight.fill_(0.5)
            elif kind == "integers":
                drawn = torch.randint(-LARGEST, LARGEST, weight.shape, generator=generator)
                weight.copy_(drawn)
            else:
                weight.normal_(generator=generator)
                if kind == "half zeros":
                    weight.view(-1)[::2] = 0
    return model.bfloat16() if kind == "bf16" else model


# Weights


def by_tensorcomp(model: nn.Module) -> int:
    """Prune by magnitude."""
    return sum(prune(model, "magnitude", SPARSITY).pruned.values())


def _weights(model: nn.Module) -> list[tuple[nn.Module, str]]:
    return [(layer, "weight") for layer in model.modules() if isinstance(layer, nn.Linear)]


def _zeros(model: nn.Module) -> int:
    """Count what torch's masks drop."""
    masks = [mask for name, mask in model.named_buffers() if name.endswith("weight_mask")]
    return sum(mask.numel() - int(torch.count_nonzero(mask)) for mask in masks)


def by_torch_layers(model: nn.Module) -> int:
    """Prune each layer by torch's own."""
    for layer, name in _weights(model):
        torch_prune.l1_unstructured(layer, name, amount=SPARSITY)  # type: ignore[no-untyped-call]
    return _zeros(model)


def by_torch_global(model: nn.Module) -> int:
    """Prune all layers together by torch's own."""
    torch_prune.global_unstructured(
        _weights(model), pruning_method=torch_prune.L1Unstructured, amount=SPARSITY
    )
    return _zeros(model)


def by_threshold(model: nn.Module) -> int:
    """Keep what is above the quantile, as threshold pruners do."""
    every = torch.cat([weight.detach().reshape(-1) for weight in model.parameters()]).abs().float()
    return int((every <= torch.quantile(every, SPARSITY)).sum())


WEIGHT_PRUNERS: dict[str, Pruner] = {
    "tensorcomp": by_tensorcomp,
    "torch l1_unstructured": by_torch_layers,
    "torch global_unstructured": by_torch_global,
    "≤ quantile": by_threshold,
}
ONE = ((10, 100),)
THREE = ((7, 55), (11, 35), (10, 23))  # 385, 385 and 230 weights


def twice(pruner: str) -> Pruner:
    """Ask a pruner for the same sparsity a second time."""

    def run(model: nn.Module) -> int:
        if pruner == "tensorcomp":
            first = prune(model, "magnitude", SPARSITY)
            return sum(prune(model, "magnitude", SPARSITY, previous=first).pruned.values())
        WEIGHT_PRUNERS[pruner](model)
        return WEIGHT_PRUNERS[pruner](model)

    return run


def weight_rows() -> Iterator[ExactRow]:
    """Prune 900 of 1,000 weights of every kind."""
    for shapes, where in ((ONE, "a layer"), (THREE, "three layers")):
        for kind in ("Gaussian", "bf16", "equal", "integers", "half zeros"):
            found = {
                name: run(filled(_layers(*shapes), kind)) for name, run in WEIGHT_PRUNERS.items()
            }
            yield ExactRow(f"{where}, {kind}", ASKED, found)
    again: dict[str, int | None] = {
        name: twice(name)(filled(_layers(*ONE), "Gaussian")) for name in WEIGHT_PRUNERS
    }
    again["≤ quantile"] = None  # of which weights, it does not remember
    yield ExactRow("a layer, Gaussian, asked twice", ASKED, again)


# Units


def _pruned_units(result: PruningResult) -> int:
    return sum(
        int((~mask.reshape(len(mask), -1).any(axis=1)).sum()) for mask in result.masks.values()
    )


def units_by_tensorcomp(model: nn.Module) -> int:
    """Prune rows of all layers but the last."""
    names = [name for name, _ in model.named_parameters()][:-1]
    return _pruned_units(prune(model, "magnitude", SPARSITY, granularity="row", where=names))


def _units_by_peer(model: nn.Module, *, together: bool) -> int:
    import torch_pruning

    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    example = torch.ones(1, layers[0].in_features, dtype=layers[0].weight.dtype)
    before = sum(layer.out_features for layer in layers)
    torch_pruning.pruner.BasePruner(
        model,
        example,
        importance=torch_pruning.importance.MagnitudeImportance(p=1),
        pruning_ratio=SPARSITY,
        global_pruning=together,
        ignored_layers=layers[-1:],
    ).step()
    return before - sum(layer.weight.shape[0] for layer in layers)


UNIT_PRUNERS: dict[str, Pruner] = {
    "tensorcomp": units_by_tensorcomp,
    "Torch-Pruning": lambda model: _units_by_peer(model, together=False),
    "Torch-Pruning, global": lambda model: _units_by_peer(model, together=True),
}
UNITS = {
    "a layer": ((1000, 64), (4, 1000)),
    "two layers": ((500, 500), (500, 500), (4, 500)),  # of equal rows
}


def unit_rows() -> Iterator[ExactRow]:
    """Prune 900 of 1,000 hidden units of every kind."""
    for where, shapes in UNITS.items():
        for kind in ("Gaussian", "bf16", "equal", "integers"):
            found = {
                name: run(filled(_layers(*shapes), kind)) for name, run in UNIT_PRUNERS.items()
            }
            yield ExactRow(f"{where}, {kind}", ASKED, found)


def exact_sheet(title: str, rows: list[ExactRow]) -> Sheet:
    """Tabulate counts, wrong ones marked."""
    names = list(rows[0].pruned) if rows else []

    def cell(row: ExactRow, name: str) -> str:
        found = row.pruned[name]
        if found is None:
            return ABSENT
        return f"{found}" if found == row.asked else f"{found} ({found - row.asked:+d})"

    body = tuple((row.what, str(row.asked), *(cell(row, name) for name in names)) for row in rows)
    return Sheet(title, ("of 1000", "asked", *names), body)


def all_exact(rows: list[ExactRow]) -> float:
    """Return how many counts of tensorcomp are not what was asked for."""
    return float(sum(row.pruned["tensorcomp"] != row.asked for row in rows))
