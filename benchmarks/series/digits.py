"""A perceptron on scikit-learn's digits by SGD with momentum: ten saves.

    python -m benchmarks.series.digits FOLDER [--seed 0] [--steps 1000]

writes ``FOLDER/digits/step_*``: fp32 weights, a bf16 copy, momentum.
"""

from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import nn
from torch.nn import functional as F

from benchmarks.common.reporting import note
from benchmarks.series.saving import MOMENTUM, NAME, save_moments, save_weights

_TRAIN, _BATCH = 1400, 64


def make(folder: Path, seed: int, steps: int) -> None:
    """Train and save."""
    from sklearn.datasets import load_digits

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    train, held_out = order[:_TRAIN], order[_TRAIN:]
    model = nn.Sequential(
        nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    generator = torch.Generator().manual_seed(seed + 1)
    for step in range(1, steps + 1):
        batch = train[torch.randint(len(train), (_BATCH,), generator=generator)]
        loss = F.cross_entropy(model(x[batch]), y[batch])
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        if step % (steps // 10) == 0:
            stem = folder / "digits" / NAME.format(step)
            save_weights(stem, model.state_dict())
            save_moments(stem, model.named_parameters(), optimizer, MOMENTUM)
    right = (model(x[held_out]).argmax(1) == y[held_out]).float().mean().item()
    note(f"held-out accuracy {right:.4f}")


def main(
    folder: Annotated[Path, typer.Argument(help="Where the series goes.")],
    seed: int = 0,
    steps: Annotated[int, typer.Option(min=10, help="Steps of training.")] = 1000,
) -> None:
    """Make the series ``digits``."""
    make(folder, seed, steps)


if __name__ == "__main__":
    typer.run(main)
