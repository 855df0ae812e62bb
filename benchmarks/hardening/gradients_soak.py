"""Train for long with overflows, skipped steps and restarts on other numbers of ranks.

``python -m benchmarks.hardening.gradients_soak --steps 10000`` trains in segments. Each runs on one
to three ranks, by one of `COMPRESSORS`, and goes on from the mean state of the one before. In some
steps a rank's gradient holds an infinity or NaN, some are accumulated in ``no_sync``, some are left
out. After each segment: Σ sent + residual = Σ gradients for the mean over ranks, within `TOLERANCE`
of the norm of Σ gradients; parameters are equal on all ranks, no state holds a value that is not
finite, and the memory of a rank has not grown by more than `GROWTH` since its first steps.
"""

import resource
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import torch.distributed as dist
import typer
from torch.nn.parallel import DistributedDataParallel

from tensorcomp.gradients import compress_gradients

_TESTS = Path(__file__).parents[2] / "tests" / "gradients"
sys.path += [str(_TESTS), str(_TESTS / "ddp")]
import ranks  # noqa: E402
from given_gradients import Case, Given, hashed, loaded, residuals, saved  # noqa: E402

SHAPES = ((64, 65), (7,), (33, 3), (80, 64), (4099,))
COMPRESSORS = ("topk(0.02)", "sign", "int2", "powersgd(2)", "adaptive_threshold(0.05)")
TOLERANCE = 1e-4
GROWTH = 8.0  # MB
WARM = 100  # steps until memory is what it will be


@dataclass(frozen=True)
class Segment:
    """Say what the ranks of a segment do."""

    number: int
    steps: int
    text: str
    parameters: Mapping[str, np.ndarray]
    state: bytes


@dataclass(frozen=True)
class Found:
    """Hold what a rank found."""

    parameters: dict[str, np.ndarray]
    sent: dict[str, np.ndarray]
    given: dict[str, np.ndarray]
    state: bytes
    skipped: int
    done: int
    grown: float


def run(segment: Segment) -> Found:
    """Train a segment on this rank."""
    rank, world = dist.get_rank(), dist.get_world_size()
    module = Given(SHAPES)
    with torch.no_grad():
        for name, values in segment.parameters.items():
            getattr(module, name).copy_(torch.from_numpy(values))
    model = DistributedDataParallel(module, bucket_cap_mb=0.02)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=50)
    alike = np.random.default_rng((segment.number, 1))  # the same on all ranks
    own = np.random.default_rng((segment.number, 2, rank))
    names = [f"p{i}" for i in range(len(SHAPES))]
    sent, given = ({n: np.zeros(s) for n, s in zip(names, SHAPES, strict=True)} for _ in range(2))
    skipped, memory = 0, 0.0
    with compress_gradients(model, segment.text, scaler=scaler, timeout=60) as compression:
        if segment.state:
            compression.load_state_dict(loaded(segment.state), strict=False)
        for step in range(segment.steps):
            if step == min(WARM, segment.steps // 2):
                memory = _megabytes()
            kind, victim = alike.random(), int(alike.integers(world))
            if kind < 0.02:
                continue  # left out by all
            optimizer.zero_grad()
            parts = 1 + (kind > 0.9)
            local = []
            for part in range(parts):
                gradients = {n: own.standard_t(4, s) for n, s in zip(names, SHAPES, strict=True)}
                tensors = {n: torch.from_numpy(g.astype(np.float32)) for n, g in gradients.items()}
                if kind < 0.06 and victim == rank:
                    tensors[names[step % 5]].view(-1)[3] = (np.inf, -np.inf, np.nan)[step % 3]
                local.append({n: t.numpy().astype(float) for n, t in tensors.items()})
                model.require_backward_grad_sync = part == parts - 1
                scaler.scale(model(tensors)).backward()
            scaler.unscale_(optimizer)
            means = {name: getattr(module, name).grad for name in names}
            if all(bool(torch.isfinite(mean).all()) for mean in means.values()):
                for name in names:
                    sent[name] += means[name].numpy()
                    given[name] += sum(one[name] for one in local)
            else:
                skipped += 1
            scaler.step(optimizer)
            scaler.update()
        grown = _megabytes() - memory
        state = saved(compression.state_dict("mean"))
        done = compression.steps
    for total in given.values():
        mean = torch.from_numpy(total)
        dist.all_reduce(mean)
        mean /= world
    parameters = {name: getattr(module, name).detach().numpy().copy() for name in names}
    return Found(parameters, sent, given, state, skipped, done, grown)


def _megabytes() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def check(
    segment: Segment, found: list[Found], before: Mapping[str, np.ndarray]
) -> tuple[float, list[str], dict[str, np.ndarray]]:
    """Return the largest error of the sums, what does not hold, and residuals afterwards."""
    state = loaded(found[0].state)
    wrong = []
    if len({hashed(one.parameters) for one in found}) > 1:
        wrong.append("parameters differ between ranks")
    if len({one.state for one in found}) > 1:
        wrong.append("mean states differ between ranks")
    for key in ("states", "means"):
        for name, fields in state[key].items():
            for field, value in fields.items():
                if isinstance(value, torch.Tensor) and not bool(torch.isfinite(value).all()):
                    wrong.append(f"{name}, {field}: not finite")
    after = residuals(state, Case(segment.text, range(1), SHAPES))
    error = 0.0
    for name, left in after.items():
        given = found[0].given[name] + before.get(name, 0.0)
        off = np.linalg.norm(found[0].sent[name] + left - given)
        error = max(error, float(off / max(np.linalg.norm(given), 1e-30)))
    if error > TOLERANCE:
        wrong.append(f"the sums are off by {error:.1e}")
    grown = max(one.grown for one in found)
    if grown > GROWTH:
        wrong.append(f"memory has grown by {grown:.1f} MB")
    return error, wrong, after


def main(
    steps: Annotated[int, typer.Option(help="Of all segments together.")] = 10_000,
    segment: Annotated[int, typer.Option(help="Steps of a segment.")] = 500,
    seed: Annotated[int, typer.Option()] = 0,
    markdown: Annotated[bool, typer.Option("--markdown", hidden=True)] = True,
) -> None:
    """Print a table of the segments."""
    rng = np.random.default_rng(seed)
    parameters: dict[str, np.ndarray] = {}
    left: dict[str, np.ndarray] = {}
    state, skipped, done, faults = b"", 0, 0, 0
    print("| segment | ranks | compressor | steps | skipped | error of the sums | memory |")
    print("| ---: | ---: | --- | ---: | ---: | ---: | ---: |")
    for number in range(-(-steps // segment)):
        world, text = int(rng.integers(1, 4)), str(rng.choice(COMPRESSORS))
        task = Segment(number, min(segment, steps - number * segment), text, parameters, state)
        found = ranks.run(run, task, world=world, timeout=3600)
        error, wrong, left = check(task, found, left)
        parameters, state = found[0].parameters, found[0].state
        skipped, done, faults = skipped + found[0].skipped, found[0].done, faults + len(wrong)
        grown = max(one.grown for one in found)
        cells = [number, world, f"`{text}`", task.steps, found[0].skipped, f"{error:.1e}"]
        line = f"| {' | '.join(map(str, cells))} | {grown:+.1f} MB |"
        print(line + "".join(f" {one}" for one in wrong), flush=True)
    print(f"\n{done} steps were done, {skipped} were skipped for overflows; {faults} faults.")
    raise SystemExit(bool(faults))


if __name__ == "__main__":
    typer.run(main)
