r"""A training that keeps its checkpoints in a series and goes on from the newest, for ckpt-chaos.

    ckpt-chaos run --checkpoint-glob "{out}/run/step-*" --ckpt-ignore-size \
        --step-regex "resumed from step (\d+)" --result-file "{out}/final.safetensors" \
        --fail-on HARD_FAIL,SILENT_DIVERGENCE,LOST_WORK \
        -- python -m benchmarks.hardening.series_training {out}

It adds, thins and collects, so that a kill at any file event of any of these must lose nothing.
Sizes differ between runs by the digits of a time.
"""

from pathlib import Path
from typing import Annotated

import torch
import typer
from safetensors.torch import save_file

from tensorcomp import Series

STEPS, EVERY = 60, 10


def main(out: Annotated[Path, typer.Argument(help="Folder of the series and the result.")]) -> None:
    """Train from the newest step on, and save the last weights."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    with Series(out / "run", keyframe_every=3, threads=1) as series:
        begun = series.latest or 0
        if begun:
            torch.set_rng_state(series.restore(begun, model, optimizer)["rng"])
        print(f"resumed from step {begun}")
        for step in range(begun + 1, STEPS + 1):
            optimizer.zero_grad()
            model(torch.randn(8, 64)).square().mean().backward()
            optimizer.step()
            if step % EVERY == 0:
                series.add(step, model, optimizer, extra={"rng": torch.get_rng_state()})
                series.flush()
            if step == STEPS - EVERY:
                series.thin(["last:2"])
                series.gc(0)
    save_file(model.state_dict(), out / "final.safetensors.new")
    (out / "final.safetensors.new").replace(out / "final.safetensors")


if __name__ == "__main__":
    typer.run(main)
