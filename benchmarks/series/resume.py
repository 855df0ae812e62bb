"""Training that goes on from a state that lost something, paired with the exact state.

    python -m benchmarks.series.resume FOLDER --part middle --kept runs.jsonl

``FOLDER/lm`` is made by `benchmarks.series.language`. Each run draws the same batches and dropout
as the exact one of its seed. Runs are kept, line by line, and not run again. Parts: ``middle`` and
``late`` restore once and train 40 steps; ``restores`` restore five times in a row, each from what
the one before led to; ``digits`` is a perceptron with β₂ of 0.999.
"""

import json
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from safetensors.numpy import load_file

from benchmarks.common.models import tiny_lm_script
from benchmarks.common.reporting import Found, JsonPath, Markdown, note, report
from benchmarks.series.resume_digits import digit_runs
from benchmarks.series.resume_tables import sheets
from benchmarks.series.states import Arrays, State, coded, file_ratio

STEPS, EVERY, FEW = 1500, 150, 40
SEEDS = 3
ONCE = ("exact", "w step 2, m zero, v rank 1", "w step 3.9, m zero, v rank 1", "ExCP")
LATE = ("exact", "policy archive", "ExCP")
OFTEN = ("exact", "policy resume")
Run = dict[str, Any]


class Part(StrEnum):
    """A part of the benchmark."""

    MIDDLE = "middle"
    LATE = "late"
    RESTORES = "restores"
    DIGITS = "digits"


class Trainer:
    """The recipe of tiny_lm, to go on from a state."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self._data, self._train = tiny_lm_script("data"), tiny_lm_script("train")
        self._evaluate, self._model = tiny_lm_script("evaluate"), tiny_lm_script("model")
        self.config = self._train.TrainConfig(steps=STEPS)
        self._corpus = self._data.load_corpus()

    def begin(self, state: State, seed: int) -> None:
        """Set a state, and what batches and dropout are drawn from."""
        self.model = self._model.TinyLM(self._model.ModelConfig(), dropout=self.config.dropout)
        self.optimizer = self._train.make_optimizer(self.model, self.config)
        self.load(state)
        torch.manual_seed(seed)
        self._generator = torch.Generator().manual_seed(1000 + seed)

    def load(self, state: State) -> None:
        """Set a state."""
        self.step = state.step
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(torch.from_numpy(state.weights[name].copy()))
                self.optimizer.state[parameter] = {
                    "step": torch.tensor(float(state.step)),
                    "exp_avg": torch.from_numpy(state.first[name].copy()),
                    "exp_avg_sq": torch.from_numpy(state.second[name].copy()),
                }

    def state(self) -> State:
        """Return a copy of what training came to."""
        found: list[Arrays] = [{}, {}, {}]
        for name, parameter in self.model.named_parameters():
            moments = self.optimizer.state[parameter]
            arrays = parameter.detach(), moments["exp_avg"], moments["exp_avg_sq"]
            for part, tensor in zip(found, arrays, strict=True):
                part[name] = tensor.numpy().copy()
        return State(*found, self.step)

    def train(self, steps: int) -> list[float]:
        """Train, and return the losses."""
        config, losses = self.config, []
        for _ in range(steps):
            batch = self._data.random_windows(
                self._corpus.train, config.batch_size, self._generator
            )
            rate, most = config.lr(self.step), config.max_grad_norm
            losses.append(self._train.train_step(self.model, self.optimizer, batch, rate, most))
            self.step += 1
        return losses

    def held_out(self) -> float:
        """Return the loss on held-out text."""
        return float(self._evaluate.mean_loss(self.model, self._corpus.held_out))


def load(folder: Path, step: int) -> State:
    """Read a saved state."""
    stem = folder / "lm" / f"step_{step:06d}"
    weights = {name: np.array(x) for name, x in load_file(f"{stem}.safetensors").items()}
    moments = load_file(f"{stem}.optim.safetensors")
    first, second = (
        {name: np.array(moments[f"{prefix}.{name}"]) for name in weights}
        for prefix in ("exp_avg", "exp_avg_sq")
    )
    return State(weights, first, second, step)


def restored_once(trainer: Trainer, folder: Path, step: int, setting: str, seed: int) -> Run:
    """Restore a state, train on for some steps."""
    state, base = load(folder, step), load(folder, step - EVERY).weights
    found = coded(state, base, setting)
    trainer.begin(found.state, seed)
    before = trainer.held_out()
    losses = trainer.train(FEW)
    return {
        "ratio": 1.0 if setting == "exact" else file_ratio(state, base, setting),
        "at restore": before,
        "last 20": float(np.mean(losses[-20:])),
        "held out": trainer.held_out(),
    }


def restored_often(trainer: Trainer, folder: Path, setting: str, seed: int) -> Run:
    """Crash and restore every 150 steps from 750 on; each base is what was restored before."""
    base = load(folder, STEPS // 2 - EVERY).weights
    trainer.begin(load(folder, STEPS // 2), seed)
    held, ratios, losses = [], [], []
    while trainer.step < STEPS:
        state = trainer.state()
        found = coded(state, base, setting)
        ratios.append(1.0 if setting == "exact" else file_ratio(state, base, setting))
        base = found.state.weights
        trainer.load(found.state)
        losses = trainer.train(EVERY)
        held.append(trainer.held_out())
        note(f"restores, {setting}, seed {seed}: step {trainer.step}, {held[-1]:.4f}")
    mean = len(ratios) / sum(1 / ratio for ratio in ratios)
    return {"ratio": mean, "held out": held, "last 150": float(np.mean(losses))}


def runs(folder: Path, part: Part, known: list[Run], seeds: int) -> Iterator[Run]:
    """Yield the runs of a part that are not known yet."""
    if part is Part.DIGITS:
        done = {run["setting"] for run in known if run["part"] == part}
        yield from ({"part": part, **run} for run in digit_runs(done))
        return
    trainer = Trainer()
    done = {(run["part"], run["setting"], run["seed"]) for run in known if "seed" in run}
    for seed in range(seeds):
        for setting in {Part.RESTORES: OFTEN, Part.LATE: LATE}.get(part, ONCE):
            if (part, setting, seed) in done:
                continue
            if part is Part.RESTORES:
                run = restored_often(trainer, folder, setting, seed)
            else:
                step = STEPS // 2 if part is Part.MIDDLE else STEPS - EVERY
                run = restored_once(trainer, folder, step, setting, seed)
            note(f"{part}, {setting}, seed {seed}: {run}")
            yield {"part": part, "setting": setting, "seed": seed, **run}


def main(
    folder: Annotated[Path, typer.Argument(help="Where the series is.")],
    part: Annotated[list[Part] | None, typer.Option(help="What to run; all by default.")] = None,
    kept: Annotated[Path, typer.Option(help="Runs, kept and not run again.")] = Path("runs.jsonl"),
    seeds: Annotated[int, typer.Option(help="How many, from 0 on.")] = SEEDS,
    only_kept: Annotated[bool, typer.Option(help="Tabulate runs, run nothing.")] = False,
    json_path: JsonPath = None,
    markdown: Markdown = False,
) -> None:
    """Run what is not kept, and tabulate all."""
    known = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    for wanted in () if only_kept else part or list(Part):
        for run in runs(folder, wanted, known, seeds):
            known.append(run)
            with kept.open("a") as file:
                file.write(json.dumps(run) + "\n")
    found = Found()
    for sheet in sheets(known):
        found.sheets.append(sheet)
    report(found, ("tensorcomp", "torch", "numpy"), markdown=markdown, json_path=json_path)


if __name__ == "__main__":
    typer.run(main)
