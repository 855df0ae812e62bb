"""The networks that `train_ddp.py` trains."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CLASSES = 10


def make_mlp(side: int) -> nn.Module:
    """Return two hidden layers of 256 rectifiers for images of side × side pixels."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(side * side, 256),
        nn.ReLU(),
        nn.Linear(256, 256),
        nn.ReLU(),
        nn.Linear(256, CLASSES),
    )


def make_cnn(side: int) -> nn.Module:
    """Return two convolutions, each halved by pooling, and two linear layers."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (side // 4) ** 2, 128),
        nn.ReLU(),
        nn.Linear(128, CLASSES),
    )


class Residual(nn.Module):
    """Two 3 × 3 convolutions around which their input is led (He et al. 2016).

    Parameters
    ----------
    inputs, outputs : int
        Channels.
    stride : int
        Of the first convolution, and of the 1 × 1 convolution that then fits the input.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, outputs, height / stride, width / stride)."""
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def make_resnet18(side: int, *, channels: int = 1, classes: int = CLASSES) -> nn.Module:
    """Return ResNet-18 (He et al. 2016) for small images: its first convolution keeps their size.

    Some 11.2 million parameters in 62 tensors.

    Parameters
    ----------
    side : int
        Any: the last maps are averaged.
    channels, classes : int
    """
    layers: list[nn.Module] = [
        nn.Conv2d(channels, 64, 3, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
    ]
    inputs = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Residual(inputs, outputs, stride), Residual(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def make_transformer(length: int) -> nn.Module:
    """Return a small language model over bytes: that of `tiny_lm`, two blocks of width 64.

    Its embedding is its output layer too: a parameter that is used twice.
    """
    TinyLM, ModelConfig = _tiny_lm()
    model: nn.Module = TinyLM(ModelConfig(dim=64, hidden_dim=192, n_layers=2))
    return model


def _tiny_lm() -> tuple[Callable[..., nn.Module], Callable[..., object]]:
    folder = str(Path(__file__).with_name("tiny_lm"))
    if folder not in sys.path:
        sys.path.append(folder)
    from model import ModelConfig, TinyLM

    return TinyLM, ModelConfig


MODELS: dict[str, Callable[[int], nn.Module]] = {
    "mlp": make_mlp,
    "cnn": make_cnn,
    "resnet18": make_resnet18,
    "transformer": make_transformer,
}


def make_model(name: str, size: int, seed: int) -> nn.Module:
    """Return a model with the initial weights of a seed.

    Parameters
    ----------
    name : str
        One of `MODELS`.
    size : int
        The side of images, or the length of texts.
    seed : int
    """
    torch.manual_seed(seed)
    return MODELS[name](size)
