"""A training run of tiny_lm from nothing: saves ten times on its way, and some close together.

    python -m benchmarks.series.language FOLDER [--seed 0] [--steps 1500]

writes ``FOLDER/lm/step_*``: fp32 weights, a bf16 copy, AdamW's moments, and whole states (``.pt``).
"""

import time
from pathlib import Path
from typing import Annotated

import torch
import typer

from benchmarks.common.models import tiny_lm_script
from benchmarks.common.reporting import note
from benchmarks.series.saving import ADAM, NAME, save_moments, save_weights


def saved_steps(steps: int) -> tuple[set[int], set[int]]:
    """Return the steps that are saved whole, and those of weights and moments alone."""
    every = steps // 10
    half, late = steps // 2, steps - every
    close = {half + 1, half + 2, half + 10, half + every // 3, late + 1, late + 10}
    return set(range(every, steps + 1, every)), close


def make(folder: Path, seed: int, steps: int) -> None:
    """Train and save."""
    torch.set_num_threads(1)
    data, train = tiny_lm_script("data"), tiny_lm_script("train")
    evaluate, model_script = tiny_lm_script("evaluate"), tiny_lm_script("model")
    config = train.TrainConfig(steps=steps, seed=seed)
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    corpus = data.load_corpus()
    model = model_script.TinyLM(model_script.ModelConfig(), dropout=config.dropout)
    optimizer = train.make_optimizer(model, config)
    whole, close = saved_steps(steps)
    begun = time.perf_counter()
    for step in range(1, steps + 1):
        batch = data.random_windows(corpus.train, config.batch_size, generator)
        loss = train.train_step(model, optimizer, batch, config.lr(step - 1), config.max_grad_norm)
        if step not in whole | close:
            continue
        stem = folder / "lm" / NAME.format(step)
        save_weights(stem, model.state_dict())
        save_moments(stem, model.named_parameters(), optimizer, ADAM)
        if step in whole:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, f"{stem}.pt")
            held_out = evaluate.mean_loss(model, corpus.held_out)
            seconds = time.perf_counter() - begun
            note(f"step {step}: loss {loss:.4f}, held out {held_out:.4f}, {seconds:.0f} s")


def main(
    folder: Annotated[Path, typer.Argument(help="Where the series goes.")],
    seed: int = 0,
    steps: Annotated[int, typer.Option(min=60, help="Steps of training.")] = 1500,
) -> None:
    """Make the series ``lm``."""
    make(folder, seed, steps)


if __name__ == "__main__":
    typer.run(main)
