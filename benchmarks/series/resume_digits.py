"""A perceptron on scikit-learn's digits, AdamW with β₂ of 0.999, restored from lossy states."""

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.series.states import Arrays, State, coded, file_ratio

SEEDS, TRAIN, BATCH, BEFORE, AFTER = 20, 1400, 32, 100, 100
SETTINGS = (
    "exact", "v rank 1", "m zero", "policy resume", "w step 1, m step 2, v rank 1",
    "policy archive", "w step 3.9, m zero, v rank 1", "ExCP", "ExCP as published",
)  # fmt: skip
Optimizer = torch.optim.Optimizer


def _data() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    return torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels), order


def _network() -> tuple[nn.Module, Optimizer]:
    model = nn.Sequential(
        nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)
    )
    return model, torch.optim.AdamW(
        model.parameters(), lr=1e-3, betas=(0.9, 0.999), weight_decay=0.01
    )


def _state(model: nn.Module, optimizer: Optimizer, step: int) -> State:
    found: list[Arrays] = [{}, {}, {}]
    for name, parameter in model.named_parameters():
        moments = optimizer.state[parameter]
        arrays = parameter.detach(), moments["exp_avg"], moments["exp_avg_sq"]
        for part, tensor in zip(found, arrays, strict=True):
            part[name] = tensor.numpy().copy()
    return State(*found, step)


def _restored(state: State) -> tuple[nn.Module, Optimizer]:
    model, optimizer = _network()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(state.weights[name].copy()))
            optimizer.state[parameter] = {
                "step": torch.tensor(float(state.step)),
                "exp_avg": torch.from_numpy(state.first[name].copy()),
                "exp_avg_sq": torch.from_numpy(state.second[name].copy()),
            }
    return model, optimizer


def digit_runs(done: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield the losses of all seeds by each setting that is not done."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y, order = _data()
    train, held_out = order[:TRAIN], order[TRAIN:]

    def go_on(
        model: nn.Module, optimizer: Optimizer, generator: torch.Generator, steps: int
    ) -> tuple[list[float], float]:
        losses = []
        for _ in range(steps):
            batch = train[torch.randint(len(train), (BATCH,), generator=generator)]
            noise = 0.3 * torch.randn(x[batch].shape, generator=generator)
            loss = F.cross_entropy(model(x[batch] + noise), y[batch])
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            losses.append(loss.item())
        with torch.no_grad():
            return losses, F.cross_entropy(model(x[held_out]), y[held_out]).item()

    model, optimizer = _network()
    generator = torch.Generator().manual_seed(1)
    go_on(model, optimizer, generator, 2 * BEFORE)
    base = _state(model, optimizer, 2 * BEFORE).weights
    go_on(model, optimizer, generator, BEFORE)
    state = _state(model, optimizer, 3 * BEFORE)
    for setting in SETTINGS:
        if setting in done:
            continue
        found = coded(state, base, setting)
        first, last, held = [], [], []
        for seed in range(SEEDS):
            generator = torch.Generator().manual_seed(100 + seed)
            losses, end = go_on(*_restored(found.state), generator, AFTER)
            first.append(float(np.mean(losses[:20])))
            last.append(float(np.mean(losses[-50:])))
            held.append(end)
        ratio = 1.0 if setting == "exact" else file_ratio(state, base, setting)
        yield {
            "setting": setting,
            "ratio": ratio,
            "first 20": first,
            "last 50": last,
            "held out": held,
        }
