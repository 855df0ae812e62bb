"""Tasks of several workers: digits, a network for them, and how weights follow from gradients.

Everything at random follows from a seed: the split of the digits, and the initial weights.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.common.accuracy import Digits, accuracy, learning_rate, mnist, sklearn_digits, split

WORKERS = 4
SMALL = 4096  # elements; parameters below it are one unit, as in a bucket
HIDDEN = 256


class Network:
    """Two hidden layers of rectifiers; all parameters are one vector, the large ones first.

    Parameters
    ----------
    pixels : int
        Of an image.
    """

    def __init__(self, pixels: int) -> None:
        sizes = tuple(pairwise((pixels, HIDDEN, HIDDEN, 10)))
        shapes: dict[str, tuple[int, ...]] = {}
        for layer, (fan_in, fan_out) in enumerate(sizes):
            shapes |= {f"{layer}.weight": (fan_out, fan_in), f"{layer}.bias": (fan_out,)}
        self.layers = len(sizes)
        self.shapes = dict(sorted(shapes.items(), key=lambda named: math.prod(named[1]) < SMALL))
        self.sizes = [math.prod(shape) for shape in self.shapes.values()]

    def weights(self, seed: int) -> torch.Tensor:
        """Return the initial parameters of a seed, (n,): Glorot's normal weights, no bias."""
        generator = torch.Generator().manual_seed(seed)
        parts = [torch.zeros(shape) for shape in self.shapes.values()]
        for part in parts:
            if part.ndim == 2:
                deviation = math.sqrt(2 / sum(part.shape))
                part.normal_(std=deviation, generator=generator)
        return torch.cat([part.reshape(-1) for part in parts])

    def logits(self, weights: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        """Return (workers, b, 10) for parameters (workers, n) and images (workers, b, pixels)."""
        parts = zip(self.shapes.items(), torch.split(weights, self.sizes, dim=1), strict=True)
        own = {name: part.view(len(weights), *shape) for (name, shape), part in parts}
        hidden = images
        for layer in range(self.layers):
            bias = own[f"{layer}.bias"].unsqueeze(1)
            hidden = torch.baddbmm(bias, hidden, own[f"{layer}.weight"].transpose(1, 2))
            if layer < self.layers - 1:
                hidden = hidden.relu()
        return hidden

    def gradients(
        self, weights: torch.Tensor, images: torch.Tensor, classes: torch.Tensor
    ) -> np.ndarray:
        """Return (workers, n): of each worker the gradient of its mean loss, (n,) parameters."""
        own = weights.expand(len(images), -1).detach().requires_grad_()
        logits = self.logits(own, images)
        loss = F.cross_entropy(logits.flatten(0, 1), classes.flatten(), reduction="sum")
        (found,) = torch.autograd.grad(loss / classes.shape[1], own)
        array: np.ndarray = found.numpy()
        return array

    def accuracy(self, weights: torch.Tensor, digits: Digits) -> float:
        """Return the share of the held-out digits that are classified correctly, in per cent."""
        return accuracy(lambda images: self.logits(weights[None], images[None])[0], digits)

    def units(self) -> Iterator[tuple[slice, str, tuple[int, ...]]]:
        """Yield what is compressed as one: where it is in the vector, its name and shape."""
        start = 0
        for (name, shape), size in zip(self.shapes.items(), self.sizes, strict=True):
            if size < SMALL:
                break
            yield slice(start, start + size), name, shape
            start += size
        rest = sum(self.sizes) - start
        if rest:
            yield slice(start, start + rest), "small", (rest,)


@dataclass(frozen=True)
class Task:
    """Digits, and how a network learns them.

    Parameters
    ----------
    name : str
    pixels : int
    data : callable
        Returns images and classes.
    total : int
        Digits in all.
    held_out : int
        Digits of them that are held out: no choice looks at them.
    epochs : int
    batch : int
        Digits of a minibatch of one worker.
    """

    name: str
    pixels: int
    data: Callable[[], tuple[Any, Any]]
    total: int
    held_out: int
    epochs: int
    batch: int

    @property
    def steps(self) -> int:
        """Steps of a training: whole minibatches of all workers."""
        return self.epochs * ((self.total - self.held_out) // (WORKERS * self.batch))

    def digits(self, seed: int) -> Digits:
        """Split the digits."""
        return split(*self.data(), self.held_out, seed)


TASKS = {
    task.name: task
    for task in (
        Task("digits", 64, sklearn_digits, 1797, 360, epochs=40, batch=16),
        Task("mnist-5k", 784, mnist, 5000, 1000, epochs=30, batch=16),
    )
}


@dataclass(frozen=True)
class Rule:
    """How parameters follow from mean gradients.

    Parameters
    ----------
    optimizer : str
        ``"sgd"`` or ``"adam"``.
    rate : float
        The learning rate at the end of the warm-up.
    momentum : float
        Of the optimizer, outside the compressor.
    rising : float
        The share of the steps in which the learning rate rises in a line.
    """

    optimizer: str
    rate: float
    momentum: float = 0.0
    rising: float = 0.1

    def of(self, weights: torch.Tensor) -> torch.optim.Optimizer:
        """Make the optimizer."""
        if self.optimizer == "adam":
            return torch.optim.Adam([weights], self.rate, fused=True)
        return torch.optim.SGD([weights], self.rate, momentum=self.momentum, fused=True)

    def rate_at(self, step: int, steps: int) -> float:
        """Return the learning rate of a step: up in a line, then half a cosine down."""
        return learning_rate(self.rate, step, steps, self.rising)
