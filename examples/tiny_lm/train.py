"""Train the tiny language model and store its weights as ``bfloat16`` safetensors."""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from data import load_corpus, random_windows
from evaluate import DEFAULT_CHECKPOINT, mean_loss, perplexity
from model import ModelConfig, TinyLM
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class TrainConfig:
    """How to train.

    Parameters
    ----------
    steps : int
        Number of optimizer steps.
    batch_size : int
        Windows of text per step.
    peak_lr : float
        Learning rate at the end of the warm-up.
    warmup : int
        Steps over which the learning rate rises linearly from zero.
    final_lr_ratio : float
        Last learning rate as a fraction of the peak.
    weight_decay : float
        Decoupled weight decay of the matrices; norm gains are not decayed.
    betas : tuple of float
        Decay rates of AdamW's two moments.
    max_grad_norm : float
        Gradients with a larger norm are scaled down to it.
    dropout : float
        Probability of dropping an element of a sub-layer's output.
    seed : int
        Seed of the initial weights, the order of the text and dropout.
    """

    steps: int = 2500
    batch_size: int = 4
    peak_lr: float = 3e-3
    warmup: int = 100
    final_lr_ratio: float = 0.01
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    max_grad_norm: float = 1.0
    dropout: float = 0.1
    seed: int = 0

    def lr(self, step: int) -> float:
        """Learning rate of a step: linear warm-up, then half a cosine down."""
        if step < self.warmup:
            return self.peak_lr * (step + 1) / self.warmup
        done = (step - self.warmup) / max(1, self.steps - self.warmup)
        cosine = 0.5 * (1 + math.cos(math.pi * done))
        return self.peak_lr * (self.final_lr_ratio + (1 - self.final_lr_ratio) * cosine)


def make_optimizer(model: TinyLM, config: TrainConfig) -> torch.optim.AdamW:
    """Build AdamW with weight decay on the matrices only."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    gains = [p for p in model.parameters() if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": gains, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.peak_lr, betas=config.betas)


def train_step(
    model: TinyLM,
    optimizer: torch.optim.Optimizer,
    batch: tuple[Tensor, Tensor],
    lr: float,
    max_grad_norm: float,
) -> float:
    """Take one optimizer step and return the loss before it, in nats per byte."""
    inputs, targets = batch
    for group in optimizer.param_groups:
        group["lr"] = lr
    loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    optimizer.step()
    return loss.item()


def train(
    model_config: ModelConfig, config: TrainConfig, *, log_every: int = 100
) -> tuple[TinyLM, torch.optim.AdamW]:
    """Train a model from scratch, printing its progress.

    Parameters
    ----------
    model_config : ModelConfig
        Sizes of the model.
    config : TrainConfig
        How to train it.
    log_every : int, default 100
        Steps between two lines of progress.

    Returns
    -------
    model : TinyLM
        The trained model.
    optimizer : torch.optim.AdamW
        Its optimizer, with the moments of the last step.
    """
    torch.manual_seed(config.seed)
    generator = torch.Generator().manual_seed(config.seed)
    corpus = load_corpus()
    model = TinyLM(model_config, dropout=config.dropout)
    optimizer = make_optimizer(model, config)
    n_weights = sum(p.numel() for p in model.parameters())
    print(
        f"{n_weights:,} weights, {len(corpus.train):,} training bytes, "
        f"{len(corpus.held_out):,} held-out bytes"
    )

    start = time.perf_counter()
    recent = 0.0
    for step in range(config.steps):
        batch = random_windows(corpus.train, config.batch_size, generator)
        recent += train_step(model, optimizer, batch, config.lr(step), config.max_grad_norm)
        done = step + 1
        if done % log_every == 0:
            held_out = mean_loss(model, corpus.held_out)
            print(
                f"step {done:5d}  training loss {recent / log_every:.4f}  "
                f"held-out loss {held_out:.4f}  {time.perf_counter() - start:.0f} s",
                flush=True,
            )
            recent = 0.0
    return model, optimizer


def save_weights(model: TinyLM, path: Path) -> None:
    """Store a model's weights as ``bfloat16`` safetensors."""
    weights = {name: tensor.bfloat16() for name, tensor in model.state_dict().items()}
    save_file(weights, path, metadata={"format": "pt"})


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    defaults = TrainConfig()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=defaults.steps, help="optimizer steps")
    parser.add_argument("--batch-size", type=int, default=defaults.batch_size, help="per step")
    parser.add_argument("--lr", type=float, default=defaults.peak_lr, help="peak learning rate")
    parser.add_argument("--dropout", type=float, default=defaults.dropout, help="probability")
    parser.add_argument("--seed", type=int, default=defaults.seed, help="of everything random")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--out", type=Path, default=DEFAULT_CHECKPOINT, help="bf16 weights")
    parser.add_argument(
        "--training-checkpoint",
        type=Path,
        metavar="PATH",
        help="also save fp32 weights, optimizer state and step to this .pt file",
    )
    return parser.parse_args()


def main() -> None:
    """Train, store the weights and print the perplexity before and after rounding them."""
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    config = TrainConfig(
        steps=arguments.steps,
        batch_size=arguments.batch_size,
        peak_lr=arguments.lr,
        dropout=arguments.dropout,
        seed=arguments.seed,
    )
    model, optimizer = train(ModelConfig(), config)

    if arguments.training_checkpoint is not None:
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "step": config.steps,
        }
        torch.save(state, arguments.training_checkpoint)
    save_weights(model, arguments.out)
    print(f"held-out perplexity, fp32: {perplexity(model.state_dict()):.4f} per byte")
    print(f"held-out perplexity, bf16: {perplexity(load_file(arguments.out)):.4f} per byte")
    print(f"{arguments.out}: {arguments.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
