"""Train, get killed, resume from a series, and compare with the run that nothing happened to.

    python examples/series/train_and_resume.py [--steps 60] [--every 10] [--crash-at 47]

trains the model of ``examples/tiny_lm`` three times, each in a process of its own: without a break;
with a `tensorcomp.Series` until it is killed (SIGKILL) after some step, whatever is being written;
and from the newest step of the series to the end. Under the policy ``exact`` the losses after the
restore are those of the first run, bit for bit.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from tensorcomp import Series

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tiny_lm"))
from data import load_corpus, random_windows
from model import ModelConfig, TinyLM
from train import TrainConfig, make_optimizer, train_step


def train(arguments: argparse.Namespace) -> None:
    """Train from the newest step of the series; write a line with each loss."""
    torch.set_num_threads(1)
    config = TrainConfig(steps=arguments.steps, batch_size=arguments.batch_size, warmup=10)
    torch.manual_seed(arguments.seed)
    generator = torch.Generator().manual_seed(arguments.seed)
    corpus = load_corpus()
    model = TinyLM(ModelConfig(), dropout=config.dropout)
    optimizer = make_optimizer(model, config)
    with Series(arguments.series, policy=arguments.policy) as series:
        done = series.latest or 0
        if done:
            extra = series.restore(done, model, optimizer)
            torch.set_rng_state(extra["torch"])  # of dropout
            generator.set_state(extra["data"])
        for step in range(done + 1, config.steps + 1):
            batch = random_windows(corpus.train, config.batch_size, generator)
            loss = train_step(model, optimizer, batch, config.lr(step - 1), config.max_grad_norm)
            print(json.dumps([step, loss]), flush=True)
            if step % arguments.every == 0:
                states = {"torch": torch.get_rng_state(), "data": generator.get_state()}
                series.add(step, model, optimizer, states)
            if step == arguments.crash_at:
                os.kill(os.getpid(), signal.SIGKILL)


def run(arguments: argparse.Namespace, series: Path, crash_at: int) -> dict[int, float]:
    """Train in a process, and return the losses by step."""
    command = [sys.executable, __file__, "--series", str(series), "--crash-at", str(crash_at)]
    for name in ("steps", "every", "batch_size", "seed", "policy"):
        command += [f"--{name.replace('_', '-')}", str(getattr(arguments, name))]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=not crash_at)
    return dict(json.loads(line) for line in process.stdout.splitlines())


def compare(arguments: argparse.Namespace) -> int:
    """Run all three and print what differs."""
    with tempfile.TemporaryDirectory() as scratch:
        plain, broken = Path(scratch, "plain"), Path(scratch, "broken")
        expected = run(arguments, plain, crash_at=0)
        before = run(arguments, broken, arguments.crash_at)
        steps = [step.step for step in Series(broken).steps]
        print(f"killed after step {max(before)}; the series has the steps {steps}")
        after = run(arguments, broken, crash_at=0)
        first = min(after)
        print(f"resumed with step {first}: loss {after[first]!r}, uncrashed {expected[first]!r}")
        differing = [step for step, loss in after.items() if loss != expected[step]]
        worst = max(abs(loss - expected[step]) for step, loss in after.items())
        print(
            f"{len(after)} losses after the restore: {len(differing)} differ, most by {worst:.2g}"
        )
        files = sorted(plain.glob("step-*.tc.safetensors"))
        print(f"{len(files)} steps in {sum(file.stat().st_size for file in files) / 1e6:.1f} MB")
        return int(arguments.policy == "exact" and bool(differing))


def main() -> int:
    """Compare three runs; or, with a series, be one of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=60, help="of training")
    parser.add_argument("--every", type=int, default=10, help="steps from save to save")
    parser.add_argument("--crash-at", type=int, default=47, help="step after which it is killed")
    parser.add_argument("--batch-size", type=int, default=4, help="windows of 256 bytes")
    parser.add_argument("--seed", type=int, default=0, help="of weights, data and dropout")
    parser.add_argument("--policy", default="exact", help="exact, resume or archive")
    parser.add_argument("--series", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.series is None:
        return compare(arguments)
    train(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
