"""Train by transformers' Trainer with a series, stop halfway, and resume from the series alone.

    python examples/series/trainer.py [--steps 40] [--every 10]

needs ``transformers`` and ``accelerate``. A small GPT-2 learns Python's language reference byte by
byte. The second run deletes the Trainer's own checkpoints, and goes on from the series: its losses
are those of a run that was never stopped, bit for bit.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from pydoc_data.topics import topics

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

from tensorcomp.hub import SeriesCallback

CONTEXT = 64


class Stop(TrainerCallback):
    """Stop at a step, as if the time of a job were over."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args, state, control, **_):  # noqa: D102
        control.should_training_stop = state.global_step >= self.step


def windows(count: int = 256) -> list[dict[str, torch.Tensor]]:
    """Cut text into windows of bytes."""
    text = "\n".join(topics[name] for name in sorted(topics)).encode()[: count * CONTEXT]
    rows = torch.frombuffer(bytearray(text), dtype=torch.uint8).long().view(count, CONTEXT)
    return [{"input_ids": row, "labels": row} for row in rows]


def make_trainer(arguments: argparse.Namespace, folder: Path, *callbacks: object) -> Trainer:
    """Build the same model, data and schedule every time."""
    set_seed(arguments.seed)
    config = GPT2Config(
        vocab_size=256,
        n_positions=CONTEXT,
        n_embd=64,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    options = TrainingArguments(
        output_dir=str(folder),
        max_steps=arguments.steps,
        save_steps=arguments.every,
        save_total_limit=1,  # the series has the others
        logging_steps=1,
        learning_rate=1e-3,
        per_device_train_batch_size=4,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
        seed=arguments.seed,
    )
    model = GPT2LMHeadModel(config)
    return Trainer(model, options, train_dataset=windows(), callbacks=list(callbacks))


def losses(trainer: Trainer) -> dict[int, float]:
    """Return the logged losses by step."""
    return {log["step"]: log["loss"] for log in trainer.state.log_history if "loss" in log}


def main() -> int:
    """Compare a run that was stopped and resumed with one that was not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=40, help="of training")
    parser.add_argument("--every", type=int, default=10, help="steps from save to save")
    parser.add_argument("--seed", type=int, default=0, help="of weights, data and dropout")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        whole = make_trainer(arguments, Path(scratch, "whole"))
        whole.train()

        keeper = SeriesCallback(Path(scratch, "series"))
        half = arguments.steps // 2
        make_trainer(arguments, Path(scratch, "run"), keeper, Stop(half)).train()
        shutil.rmtree(Path(scratch, "run"))

        resumed = make_trainer(arguments, Path(scratch, "run"), keeper)
        resumed.train(resume_from_checkpoint=keeper.restore(Path(scratch, "run")))
        expected, found = losses(whole), losses(resumed)
        same = all(found[step] == loss for step, loss in expected.items())
        kept = keeper.series.steps
        plain = sum(step.source_bytes for step in kept)
        stored = sum(step.nbytes for step in kept)
        print(f"{len(kept)} checkpoints, {plain / 1e6:.2f} MB in {stored / 1e6:.2f} MB")
        print(f"losses of {len(expected)} steps are {'the same' if same else 'NOT the same'}")
        return not same


if __name__ == "__main__":
    sys.exit(main())
