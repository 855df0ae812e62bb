"""A small network as a checkpoint, and what a calibration measured of it."""

import functools
from pathlib import Path

import numpy as np
import torch
from checkpoint_files import write_safetensors
from torch import nn

from tensorcomp.calibration.calibrate import calibrate
from tensorcomp.planning.statistics import Statistics

CURVATURE = ("second_moment", "row_weight")
UP, GATE, CONV, DOWN = "up.weight", "gate", "conv.weight", "down.weight"
HEAD, TIED = "head.weight", "tied.weight"
MEASURED = (UP, GATE, CONV, DOWN, HEAD, TIED)
UNUSED = "unused.weight"


class Net(nn.Module):
    """Three layers, one stored as inputs × outputs, a convolution, a tied and an unused layer."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(48, 128)
        self.gate = nn.Parameter(torch.randn(128, 96) / 12)
        self.conv = nn.Conv2d(32, 32, 3, padding=1)
        self.down = nn.Linear(96, 64)
        self.head = nn.Linear(64, 64, bias=False)
        self.tied = nn.Linear(64, 64, bias=False)
        self.tied.weight = self.head.weight
        self.unused = nn.Linear(70, 64, bias=False)

    def forward(self, x):
        x = torch.relu(self.up(x)) @ self.gate
        x = x + self.conv(x.reshape(-1, 32, 3, 1)).reshape(x.shape)
        return self.tied(torch.relu(self.head(torch.relu(self.down(x)))))


@functools.cache
def network():
    torch.manual_seed(0)
    return Net()


def batches(samples, seed=0):
    """Return inputs of which a few directions hold most, as those of real layers do."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(8, 48, generator=generator)
    x = torch.randn(samples, 8, generator=generator) @ mixing
    return [x + 0.1 * torch.randn(samples, 48, generator=generator)]


@functools.cache
def tensors():
    """Return the tensors of the network; the tied one under both names."""
    return {name: value.numpy().copy() for name, value in network().state_dict().items()}


@functools.cache
def statistics(samples=256):
    def loss(model, x):
        return 0.5 * model(x).square().sum(dim=1).mean()

    return calibrate(network(), batches(samples), loss=loss, statistics=CURVATURE)


def write_model(path, dtype=np.float32):
    """Write the network as safetensors."""
    return write_safetensors(
        Path(path), {name: value.astype(dtype) for name, value in tensors().items()}
    )


def write_statistics(path, measured: Statistics | None = None):
    """Write the statistics."""
    (measured or statistics()).save(path, force=True)
    return Path(path)
