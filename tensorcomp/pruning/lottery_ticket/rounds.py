"""The rounds of a lottery ticket: how a network is trained, what is pruned, what comes of it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import torch
from torch import nn

from tensorcomp.errors import PruningError
from tensorcomp.pruning.lottery_ticket.rewind_point import RewindPoint
from tensorcomp.pruning.lottery_ticket.store import Shelf, Weights
from tensorcomp.pruning.mask_hooks import hold
from tensorcomp.pruning.masking import Masks
from tensorcomp.pruning.preserve_state import generators, seed_generators, set_generators
from tensorcomp.pruning.result import PruningResult
from tensorcomp.pruning.targets import unwrapped
from tensorcomp.pruning.weights import ModelWeights
from tensorcomp.selection.granularity import NM, Granularity
from tensorcomp.selection.scores.base import Score
from tensorcomp.selection.select import Scope, select
from tensorcomp.selection.streaming_scores import StreamingScores

MakeModel: TypeAlias = "Callable[[], nn.Module]"
MakeOptimizer: TypeAlias = "Callable[[nn.Module], torch.optim.Optimizer]"
Train: TypeAlias = "Callable[[nn.Module, torch.optim.Optimizer, int, int], object]"


@dataclass(frozen=True)
class Round:
    """A round of the search: what was kept, and what training made of it.

    Attributes
    ----------
    number : int
        0 is the dense network.
    result : PruningResult
        The masks that were held.
    """

    number: int
    result: PruningResult
    _weights: Callable[[], Weights] = field(repr=False)
    _control: Callable[[], Weights] | None = field(repr=False)

    @property
    def sparsity(self) -> float:
        """The exact part of the prunable weights that is pruned."""
        return self.result.sparsity

    def weights(self) -> Weights:
        """Return the trained state dict, on the CPU; read from the folder if there is one."""
        return self._weights()

    def control(self) -> Weights | None:
        """Return the trained state dict of the control, if there is one."""
        return None if self._control is None else self._control()


@dataclass(frozen=True)
class Ticket:
    """What `find_ticket` found.

    Attributes
    ----------
    rounds : tuple of Round
        The dense network first.
    start : RewindPoint
        The rewind point; its `restore` sets a model and an optimizer to it.
    """

    rounds: tuple[Round, ...]
    start: RewindPoint

    @property
    def result(self) -> PruningResult:
        """The masks of the last round."""
        return self.rounds[-1].result


@dataclass(frozen=True)
class Training:
    """How a network is made and trained."""

    make_model: MakeModel
    make_optimizer: MakeOptimizer
    train: Train
    steps: int
    rewind: int
    seed: int

    def fresh(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Make the model of the seed, and its optimizer."""
        seed_generators(self.seed)
        model = self.make_model()
        if not isinstance(model, nn.Module):
            raise PruningError(f"make_model returns a {type(model).__name__}, not a torch module")
        optimizer = self.make_optimizer(model)
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise PruningError(
                f"make_optimizer returns a {type(optimizer).__name__}, not a torch optimizer"
            )
        return model, optimizer

    def start(self) -> RewindPoint:
        """Train to the rewind point."""
        model, optimizer = self.fresh()
        if self.rewind:
            self.train(model, optimizer, 0, self.rewind)
        return RewindPoint.of(unwrapped(model), optimizer)

    def finish(self, start: RewindPoint, masks: Masks | None) -> Weights:
        """Train from the rewind point to the end, with masks held."""
        model, optimizer = self.fresh()
        start.restore(unwrapped(model), optimizer)
        held = hold(model, optimizer, masks) if masks else contextlib.nullcontext()
        with held:
            self.train(model, optimizer, self.rewind, self.steps)
            return state_of(model)

    def from_scratch(self, masks: Masks) -> Weights:
        """Train from step 0, with masks held; the generators are as before in the end."""
        before = generators()
        try:
            model, optimizer = self.fresh()
            with hold(model, optimizer, masks):
                self.train(model, optimizer, 0, self.steps)
                return state_of(model)
        finally:
            set_generators(before)


@dataclass(frozen=True)
class Choice:
    """What is pruned in a round."""

    score: Score
    scope: Scope | None
    granularity: Granularity
    floor: float

    def check(self) -> None:
        """Refuse what cannot be chosen by, round after round."""
        if self.score.statistic is not None:
            raise PruningError(
                f"the score {self.score} needs data; tickets are found by scores of weights alone"
            )
        if isinstance(self.granularity, NM):
            raise PruningError(f"{self.granularity} has one sparsity only; rounds cannot raise it")

    def settings(self, names: Iterable[str]) -> dict[str, object]:
        """Return what must be the same for a search to go on."""
        scope = self.scope
        return {
            "score": str(self.score),
            "scope": [repr(scope(name)) for name in names] if callable(scope) else scope,
            "granularity": str(self.granularity),
            "floor": self.floor,
        }

    def of(self, weights: Weights, sparsity: float, last: PruningResult) -> PruningResult:
        """Choose among trained weights; what was pruned last stays so."""
        arrays = ModelWeights({name: weights[name] for name in last.masks})
        selection = select(
            StreamingScores(arrays, self.score),
            sparsity,
            scope=self.scope,
            granularity=self.granularity,
            floor=self.floor,
            previous=last.masks,
        )
        return PruningResult.of(selection, str(self.score))


@dataclass(frozen=True)
class Search:
    """The rounds, each taken from the shelf or made and put there."""

    training: Training
    choice: Choice
    shelf: Shelf
    control: bool

    def run(self, shapes: Mapping[str, tuple[int, ...]], schedule: Sequence[float]) -> Ticket:
        """Make the rounds that are missing."""
        start = self.shelf.point()
        if start is None:
            start = self.training.start()
            self.shelf.put_point(start)
        result = PruningResult({name: np.ones(shape, np.bool_) for name, shape in shapes.items()})
        rounds = [self._round(0, start, result)]
        for number, sparsity in enumerate(schedule, 1):
            kept = self.shelf.masks(_name(number))
            if kept is None:
                kept = self.choice.of(rounds[-1].weights(), sparsity, result)
                self.shelf.put_masks(_name(number), kept)
            result = kept
            rounds.append(self._round(number, start, result))
        return Ticket(tuple(rounds), start)

    def _round(self, number: int, start: RewindPoint, result: PruningResult) -> Round:
        name, control = _name(number), f"{_name(number)}.control"
        if not self.shelf.has_weights(name):
            weights = self.training.finish(start, result.masks if number else None)
            self.shelf.put_weights(name, weights)
        if not (self.control and number):
            return Round(number, result, functools.partial(self.shelf.weights, name), None)
        if not self.shelf.has_weights(control):
            other = replace(self.training, seed=self.training.seed + 1)
            weights = other.from_scratch(result.masks)
            self.shelf.put_weights(control, weights)
        take = functools.partial(self.shelf.weights, control)
        return Round(number, result, functools.partial(self.shelf.weights, name), take)


def _name(number: int) -> str:
    return f"round-{number:02}"


def state_of(model: nn.Module) -> Weights:
    """Return a model's state dict, on the CPU, as tensors of one's own."""
    state = {}
    for name, tensor in unwrapped(model).state_dict().items():
        if not isinstance(tensor, torch.Tensor):
            raise PruningError(
                f"the state dict's {name!r} is a {type(tensor).__name__}, not a tensor; rounds "
                "cannot be kept"
            )
        state[name] = tensor.detach().cpu().clone()
    return state
