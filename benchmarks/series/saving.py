"""Write weights and moments of a series: fp32, a bf16 copy, moments of their own."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

NAME = "step_{:06d}"
FOR_TORCH = {"format": "pt"}


def save_weights(stem: Path, weights: Mapping[str, torch.Tensor]) -> None:
    """Write ``STEM.safetensors`` in fp32 and ``STEM.bf16.safetensors``."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    plain = {name: value.detach().float().contiguous() for name, value in weights.items()}
    narrow = {name: value.detach().bfloat16().contiguous() for name, value in weights.items()}
    save_file(plain, f"{stem}.safetensors", metadata=FOR_TORCH)
    save_file(narrow, f"{stem}.bf16.safetensors", metadata=FOR_TORCH)


def save_moments(
    stem: Path,
    parameters: Iterable[tuple[str, torch.Tensor]],
    optimizer: torch.optim.Optimizer,
    moments: Mapping[str, str],
) -> None:
    """Write ``STEM.optim.safetensors``: moments of an optimizer by their names there and here."""
    found: dict[str, Any] = {}
    for name, parameter in parameters:
        state = optimizer.state.get(parameter, {})
        found |= {
            f"{new}.{name}": state[old].clone() for old, new in moments.items() if old in state
        }
    save_file(found, f"{stem}.optim.safetensors", metadata=FOR_TORCH)


ADAM = {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}
MOMENTUM = {"momentum_buffer": "momentum"}
