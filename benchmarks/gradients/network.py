"""ResNet-18 for images of 32 × 32, as the benchmarks of gradients train it."""

import torch
from torch import Tensor, nn

WIDTHS = (64, 128, 256, 512)


class Block(nn.Module):
    """Two convolutions of 3 × 3, and a way past them."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(width)
        self.past: nn.Module = nn.Identity()
        if stride != 1 or channels != width:
            shortcut = nn.Conv2d(channels, width, 1, stride, bias=False)
            self.past = nn.Sequential(shortcut, nn.BatchNorm2d(width))

    def forward(self, images: Tensor) -> Tensor:
        """Return the block's output."""
        inner = torch.relu(self.first_norm(self.first(images)))
        return torch.relu(self.second_norm(self.second(inner)) + self.past(images))


def resnet18(classes: int) -> nn.Sequential:
    """Return a ResNet-18 whose first convolution keeps 32 × 32 images at their size.

    References
    ----------
    He et al. 2016, "Deep residual learning for image recognition".
    """
    layers: list[nn.Module] = [nn.Conv2d(3, WIDTHS[0], 3, 1, 1, bias=False)]
    layers += [nn.BatchNorm2d(WIDTHS[0]), nn.ReLU()]
    channels = WIDTHS[0]
    for width in WIDTHS:
        stride = 1 if width == channels else 2
        layers += [Block(channels, width, stride), Block(width, width, 1)]
        channels = width
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)
    )
