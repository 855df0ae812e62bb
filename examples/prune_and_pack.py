"""Prune a small network, train what is left, and pack it: score, select, hold, compress, reload.

    python examples/prune_and_pack.py [--score magnitude] [--sparsity 0.9] [--out FOLDER]

Needs torch and scikit-learn, whose images of handwritten digits it learns (1,797 of 8 × 8 pixels, a
quarter held out). Takes some seconds on one core.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

from tensorcomp import load_file, save_file
from tensorcomp.pruning import prune

# Deep Compression: where weights are left, one of 16 numbers for each, in Huffman codes.
CODEBOOK = "linear=sparse(mask=gaps, values=kmeans(16, codes=huffman))"
BATCH = 64


@dataclass(frozen=True)
class Digits:
    """Images, (n, 64) float32 from 0 to 1, and their digits, (n,) int64."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor

    @classmethod
    def load(cls) -> Digits:
        """Return the digits; those that are held out are the same each time."""
        images, digits = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(images))
        x = torch.from_numpy(images[order].astype(np.float32) / 16)
        y = torch.from_numpy(digits[order].astype(np.int64))
        held_out = len(images) // 4
        return cls(x[held_out:], y[held_out:], x[:held_out], y[:held_out])

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield minibatches of one pass over the training data, in random order."""
        for rows in torch.randperm(len(self.train_x)).split(BATCH):
            yield self.train_x[rows], self.train_y[rows]

    def accuracy(self, model: nn.Module) -> float:
        """Return the part of the held-out digits that a model recognises."""
        model.eval()
        with torch.inference_mode():
            hits = model(self.test_x).argmax(dim=1) == self.test_y
        return float(hits.float().mean())


def make_model() -> nn.Sequential:
    """Return LeNet-300-100 for images of 64 pixels: 50,200 weights in its three layers."""
    return nn.Sequential(
        nn.Linear(64, 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU(), nn.Linear(100, 10)
    )


def train(model: nn.Module, optimizer: torch.optim.Optimizer, data: Digits, epochs: int) -> None:
    """Train a model for some passes over the data."""
    model.train()
    for _ in range(epochs):
        for x, y in data.batches():
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


@dataclass(frozen=True)
class Figures:
    """What came of it: accuracies from 0 to 1, sizes in bytes of whole files."""

    sparsity: float
    dense_accuracy: float
    pruned_accuracy: float
    codebook_accuracy: float
    raw_bytes: int
    dense_bytes: int
    pruned_bytes: int
    codebook_bytes: int


def run(score: str, sparsity: float, folder: Path, *, seed: int = 0) -> Figures:
    """Train, prune, train on, and pack a network.

    Parameters
    ----------
    score : str
        What weights are pruned by, as for `tensorcomp.pruning.prune`.
    sparsity : float
        The part of the weights that is pruned.
    folder : Path
        Gets three files.
    seed : int
    """
    torch.manual_seed(seed)
    data = Digits.load()
    model = make_model()
    train(model, torch.optim.Adam(model.parameters(), lr=1e-3), data, epochs=20)
    dense_accuracy = data.accuracy(model)
    dense = save_file(model.state_dict(), folder / "dense.tc.safetensors")

    # Score and select; the model is as it was.
    result = prune(model, score, sparsity, data=data.batches())

    # Hold the masks while what is left learns to do without the rest.
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
    with result.hold(model, optimizer):
        train(model, optimizer, data, epochs=20)

    # Pack without loss, and with a codebook; both are read back and tried.
    files = {
        "pruned": save_file(model.state_dict(), folder / "pruned.tc.safetensors"),
        "codebook": save_file(
            model.state_dict(), folder / "codebook.tc.safetensors", codecs=[CODEBOOK]
        ),
    }
    accuracies = {}
    for name in files:
        packed = make_model()
        state = load_file(folder / f"{name}.tc.safetensors", framework="pt")
        packed.load_state_dict(state)
        for tensor, mask in result.masks.items():
            assert not state[tensor].numpy()[~mask].any()
        accuracies[name] = data.accuracy(packed)
    return Figures(
        result.sparsity,
        dense_accuracy,
        accuracies["pruned"],
        accuracies["codebook"],
        dense.input_bytes,
        dense.output_bytes,
        files["pruned"].output_bytes,
        files["codebook"].output_bytes,
    )


def main() -> None:
    """Read the command line, and print accuracies, sparsity and bytes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--score", default="magnitude", help="magnitude, snip, taylor, obd, …")
    parser.add_argument("--sparsity", type=float, default=0.9, help="the part that is pruned")
    parser.add_argument("--out", type=Path, help="a folder for the files")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        figures = run(arguments.score, arguments.sparsity, folder)
    print(f"{figures.sparsity:.4%} of the weights are zero, chosen by {arguments.score}")
    for name, accuracy, nbytes in [
        ("safetensors", figures.dense_accuracy, figures.raw_bytes),
        ("dense", figures.dense_accuracy, figures.dense_bytes),
        ("pruned, lossless", figures.pruned_accuracy, figures.pruned_bytes),
        ("pruned, 16 numbers", figures.codebook_accuracy, figures.codebook_bytes),
    ]:
        ratio = figures.raw_bytes / nbytes
        print(f"{name:20} {nbytes:>8,} bytes {ratio:6.1f}×   accuracy {accuracy:.1%}")


if __name__ == "__main__":
    main()
