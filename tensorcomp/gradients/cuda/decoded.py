"""What a payload decodes to, on a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tensorcomp.gradients.payload.decoded import DecodedGradient, DenseGradient, SparseGradient


@dataclass(frozen=True, eq=False)
class DenseTensor(DecodedGradient):
    """Every element, on a device.

    Parameters
    ----------
    values : torch.Tensor
        Flat (n,).
    """

    values: torch.Tensor

    @property
    def count(self) -> int:
        """All elements."""
        return self.values.numel()

    def add_to(self, out: Any, factor: float) -> None:
        """Add all elements, times a factor, to a tensor (n,)."""
        out += self.values * factor

    def subtract_from(self, values: Any) -> None:
        """Subtract all elements from a tensor (n,)."""
        values -= self.values

    def clear(self, values: Any) -> None:
        """Set all elements of a tensor (n,) to zero."""
        values.zero_()


@dataclass(frozen=True, eq=False)
class SparseTensor(DecodedGradient):
    """Some elements, on a device.

    Parameters
    ----------
    positions : torch.Tensor
        (k,) int64, strictly ascending: no two are added at the same place, in no order.
    values : torch.Tensor
        (k,)
    """

    positions: torch.Tensor
    values: torch.Tensor

    @property
    def count(self) -> int:
        """K."""
        return self.positions.numel()

    def add_to(self, out: Any, factor: float) -> None:
        """Add the elements, times a factor, at their places of a tensor (n,)."""
        out[self.positions] += self.values * factor

    def subtract_from(self, values: Any) -> None:
        """Subtract the elements at their places of a tensor (n,)."""
        values[self.positions] -= self.values

    def clear(self, values: Any) -> None:
        """Set a tensor (n,) to zero at their places."""
        values[self.positions] = 0


def sent_on(sent: DecodedGradient, device: torch.device) -> DecodedGradient:
    """Return on a device what a payload decodes to on the host."""
    if isinstance(sent, SparseGradient):
        places, values = (torch.from_numpy(a).to(device) for a in (sent.positions, sent.values))
        return SparseTensor(places, values)
    if isinstance(sent, DenseGradient):
        return DenseTensor(torch.from_numpy(sent.values).to(device))
    return sent
