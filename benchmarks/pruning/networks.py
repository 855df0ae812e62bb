"""The networks that are pruned, the digits they are trained on, and how.

Every choice at random follows from a seed: the split of the digits, the initial weights, and the
order of the minibatches.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.common.accuracy import Digits, accuracy, learning_rate, mnist, sklearn_digits, split

FINE = (0.3, 0.5, 0.65, 0.75, 0.8, 0.86, 0.9, 0.93, 0.95, 0.965, 0.98, 0.99)
COARSE = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99)


def lenet_300_100(pixels: int) -> nn.Module:
    """Make LeNet-300-100 (LeCun et al. 1998): two hidden layers of rectifiers."""
    return nn.Sequential(
        nn.Linear(pixels, 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU(), nn.Linear(100, 10)
    )


def lenet_5() -> nn.Module:
    """Make LeNet-5 as Caffe has it, which Deep Compression is about: 431,080 parameters."""
    model = nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 20, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(20, 50, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(800, 500),
        nn.ReLU(),
        nn.Linear(500, 10),
    )
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


@dataclass(frozen=True)
class Case:
    """A network, its digits, and how it is trained.

    Parameters
    ----------
    name : str
    network : callable
        Makes the network.
    data : callable
        Returns images and classes.
    held_out : int
        Digits that are held out of them.
    epochs : int
        Of a whole training.
    rounds : tuple of float
        Sparsities that lottery tickets pass through, besides those asked for.
    peak : float
        The learning rate at the end of the warm-up.
    batch : int
        Digits of a minibatch.
    warm_up : float
        The share of the steps in which the learning rate rises.
    shuffled : tuple of str
        Scores whose masks are shuffled, too.
    """

    name: str
    network: Callable[[], nn.Module]
    data: Callable[[], tuple[Any, Any]]
    held_out: int
    epochs: int
    rounds: tuple[float, ...]
    peak: float = 5e-3
    batch: int = 50
    warm_up: float = 0.2
    shuffled: tuple[str, ...] = ("snip", "grasp")

    def digits(self, seed: int) -> Digits:
        """Split the digits."""
        return split(*self.data(), self.held_out, seed)

    def model(self) -> nn.Module:
        """Make the network, its weights drawn from torch's global generator (Glorot's normal)."""
        model = self.network()
        for layer in model.modules():
            if isinstance(layer, (nn.Linear, nn.Conv2d)):
                nn.init.xavier_normal_(layer.weight)
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
        return model

    def seeded_model(self, seed: int) -> nn.Module:
        """Make the network with the initial weights of a seed."""
        torch.manual_seed(seed)
        return self.model()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Make Adam for a network."""
        return torch.optim.Adam(model.parameters(), self.peak, fused=True)


CASES = {
    case.name: case
    for case in (
        Case("lenet-300-100", lambda: lenet_300_100(784), mnist, 1000, 20, FINE),
        Case("lenet-5", lenet_5, mnist, 1000, 5, COARSE, shuffled=("snip",)),  # to save time
        Case("digits-300-100", lambda: lenet_300_100(64), sklearn_digits, 360, 20, FINE),
    )
}


@dataclass(frozen=True)
class Course:
    """A course of training: so many steps of a case, on the digits of a seed.

    Parameters
    ----------
    case : Case
    digits : Digits
    epochs : int
    seed : int
        Of the order of the digits.
    peak : float
        The learning rate at the end of the warm-up.
    """

    case: Case
    digits: Digits
    epochs: int
    seed: int
    peak: float

    @classmethod
    def of(cls, case: Case, digits: Digits, seed: int) -> "Course":
        """Return a course of the case's own."""
        return cls(case, digits, case.epochs, seed, case.peak)

    @property
    def steps_of_epoch(self) -> int:
        """Minibatches of an epoch; the last one may be smaller."""
        return math.ceil(len(self.digits.classes) / self.case.batch)

    @property
    def steps(self) -> int:
        """Minibatches of the whole course."""
        return self.epochs * self.steps_of_epoch

    def rate(self, step: int) -> float:
        """Return the learning rate of a step: up in a line, then half a cosine down."""
        return learning_rate(self.peak, step, self.steps, self.case.warm_up)

    def train(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, start: int, stop: int
    ) -> None:
        """Train from step `start` to step `stop`; what is done in a step follows from its number.

        Masks that the model holds are held.
        """
        order = torch.empty(0)
        for step in range(start, stop):
            epoch, place = divmod(step, self.steps_of_epoch)
            if step == start or place == 0:
                generator = torch.Generator().manual_seed(1_000_003 * self.seed + epoch)
                order = torch.randperm(len(self.digits.classes), generator=generator)
            chosen = order[place * self.case.batch : (place + 1) * self.case.batch]
            for group in optimizer.param_groups:
                group["lr"] = self.rate(step)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(self.digits.images[chosen]), self.digits.classes[chosen])
            torch.autograd.backward(loss)
            optimizer.step()

    def finish(self, model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> float:
        """Train for the whole course, and return the accuracy on the held-out digits."""
        self.train(model, optimizer or self.case.optimizer(model), 0, self.steps)
        return accuracy(model, self.digits)
