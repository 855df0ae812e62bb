"""Make and train the networks of a lottery ticket."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import nn

from tensorcomp.calibration.masking import Masks
from tensorcomp.calibration.preserve_state import preserve_generators, seed_generators
from tensorcomp.calibration.targets import unwrapped
from tensorcomp.errors import PruningError
from tensorcomp.pruning.lottery_ticket.rewind_point import RewindPoint
from tensorcomp.pruning.mask_hooks import hold
from tensorcomp.selection.checks import require_count

MakeModel: TypeAlias = "Callable[[], nn.Module]"
MakeOptimizer: TypeAlias = "Callable[[nn.Module], torch.optim.Optimizer]"
Train: TypeAlias = "Callable[[nn.Module, torch.optim.Optimizer, int, int], object]"
Weights: TypeAlias = "dict[str, torch.Tensor]"

_LARGEST = (1 << 63) - 1  # seed that torch takes; the control takes the next one


@dataclass(frozen=True)
class Training:
    """Recipe for making and training a network."""

    make_model: MakeModel
    make_optimizer: MakeOptimizer
    train: Train
    steps: int
    rewind: int
    seed: int

    def __post_init__(self) -> None:
        require_count("steps", self.steps)
        require_count("rewind", self.rewind, 0)
        if require_count("seed", self.seed, 0) >= _LARGEST:
            raise PruningError(f"expected seed to be less than 2**63 - 1, got {self.seed}")
        if self.rewind >= self.steps:
            raise PruningError(
                f"expected rewind to be less than the {self.steps} steps, got {self.rewind}"
            )

    def fresh(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Make the model of the seed, and its optimizer."""
        seed_generators(self.seed)
        model = self.make_model()
        _require("make_model", "module", model, nn.Module)
        optimizer = self.make_optimizer(model)
        _require("make_optimizer", "optimizer", optimizer, torch.optim.Optimizer)
        return model, optimizer

    def start(self) -> RewindPoint:
        """Train to the rewind point."""
        model, optimizer = self.fresh()
        if self.rewind:
            self.train(model, optimizer, 0, self.rewind)
        return RewindPoint.of(unwrapped(model), optimizer)

    def finish(self, start: RewindPoint | None, masks: Masks | None) -> Weights:
        """Train to the end, from the rewind point and with masks, if given."""
        with preserve_generators():
            model, optimizer = self.fresh()
            if start is not None:
                start.restore(unwrapped(model), optimizer)
            with contextlib.nullcontext() if masks is None else hold(model, optimizer, masks):
                self.train(model, optimizer, self.rewind if start else 0, self.steps)
                return state_of(model)


def _require(make: str, noun: str, made: object, kind: type) -> None:
    if not isinstance(made, kind):
        got = type(made).__name__
        raise PruningError(f"expected {make} to return a torch {noun}, got a {got}")


def state_of(model: nn.Module) -> Weights:
    """Return a copy of a model's state dict, on the CPU."""
    state = {}
    for name, tensor in unwrapped(model).state_dict().items():
        if not isinstance(tensor, torch.Tensor):
            raise PruningError(
                f"the state dict's {name!r} is a {type(tensor).__name__}, not a tensor"
            )
        state[name] = tensor.detach().cpu().clone()
    return state
