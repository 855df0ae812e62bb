"""Fine-tunes of the last weights of `language` on news: full, gentle, and LoRA of rank 8, merged.

    python -m benchmarks.series.finetunes FOLDER [--seed 1] [--steps 150]

reads ``FOLDER/lm`` and writes ``FOLDER/ft``: base, full (learning rate 1e-4), gentle (1e-5) with
two steps of its middle, lora (1e-3, the factors are added to bf16 weights).
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

from benchmarks.common.checkpoints import LEE
from benchmarks.common.models import tiny_lm_script
from benchmarks.common.reporting import note
from benchmarks.series.saving import save_weights

RANK, SCALE = 8, 2.0
_HELD_OUT = 20_000  # bytes


class LowRank(nn.Module):
    """A linear layer whose weight is frozen, with the product of two factors beside it."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear.requires_grad_(False)
        scale = math.sqrt(linear.in_features)
        self.a = nn.Parameter(torch.randn(RANK, linear.in_features) / scale)
        self.b = nn.Parameter(torch.zeros(linear.out_features, RANK))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute ``W x + s B A x``."""
        return self.linear(x) + F.linear(F.linear(x, self.a), self.b) * SCALE

    def merged(self) -> torch.Tensor:
        """Return ``W + s B A``."""
        return self.linear.weight + SCALE * self.b @ self.a


class Task:
    """News to learn, and a schedule."""

    def __init__(self, folder: Path, seed: int, steps: int) -> None:
        text = torch.frombuffer(bytearray(LEE.locate().read_bytes()), dtype=torch.uint8)
        cut = len(text) * 9 // 10
        self.train, self.held_out = text[:cut], text[cut:][:_HELD_OUT]
        self.folder, self.seed, self.steps = folder, seed, steps
        self.random_windows = tiny_lm_script("data").random_windows
        self.mean_loss = tiny_lm_script("evaluate").mean_loss

    def save(self, name: str, weights: Mapping[str, torch.Tensor]) -> None:
        """Write weights under a name."""
        save_weights(self.folder / "ft" / name, weights)

    def fit(self, model: Any, lr: float, weight_decay: float, name: str) -> None:
        """Train what of a model takes gradients; save two steps of the middle of ``gentle``."""
        parameters = [value for value in model.parameters() if value.requires_grad]
        optimizer = torch.optim.AdamW(parameters, lr=lr, weight_decay=weight_decay)
        generator = torch.Generator().manual_seed(self.seed)
        half = self.steps // 2
        for step in range(self.steps):
            cosine = 0.5 * (1 + math.cos(math.pi * step / self.steps))
            for group in optimizer.param_groups:
                group["lr"] = lr * min(1, (step + 1) / 15) * cosine
            inputs, targets = self.random_windows(self.train, 4, generator)
            loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            if name == "gentle" and step + 1 in (half, half + 1):
                self.save(f"{name}_{step + 1}", model.state_dict())
        note(f"{name}: held out {self.mean_loss(model, self.held_out):.4f}")


def low_rank_layers(model: nn.Module) -> dict[str, LowRank]:
    """Put factors beside every linear layer of a frozen model, and return them by name."""
    found = {}
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear):
            found[name] = LowRank(module)
            setattr(
                model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2], found[name]
            )
    return found


def make(folder: Path, seed: int, steps: int) -> None:
    """Make all fine-tunes."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model_from = tiny_lm_script("evaluate").model_from
    base = load_file(sorted((folder / "lm").glob("step_*.bf16.safetensors"))[-1])
    task = Task(folder, seed, steps)
    task.save("base", base)
    for name, lr in (("full", 1e-4), ("gentle", 1e-5)):
        model = model_from(base)
        task.fit(model, lr, 0.01, name)
        task.save(name, model.state_dict())
    model = model_from(base).requires_grad_(False)
    layers = low_rank_layers(model)
    task.fit(model, 1e-3, 0.0, "lora")
    task.save("lora", base | {f"{name}.weight": layer.merged() for name, layer in layers.items()})


def main(
    folder: Annotated[Path, typer.Argument(help="Where the series ``lm`` is, and this goes.")],
    seed: int = 1,
    steps: Annotated[int, typer.Option(min=20, help="Steps of each fine-tune.")] = 150,
) -> None:
    """Make the fine-tunes ``ft``."""
    make(folder, seed, steps)


if __name__ == "__main__":
    typer.run(main)
