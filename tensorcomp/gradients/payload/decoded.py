"""Hold decoded gradients: dense, low-rank, sparse or empty.

Its arrays, and those that it is added to, are NumPy's or tensors on one device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorcomp.codecs.lowrank.svd import product
from tensorcomp.gradients.payload.arrays import accumulate
from tensorcomp.kernels import native

if TYPE_CHECKING:
    from tensorcomp.gradients.base import GradientSpec


class DecodedGradient(ABC):
    """Hold a decoded gradient: a vector of elements in row-major order."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Elements that are not left out."""

    @abstractmethod
    def add_to(self, out: Any, factor: float) -> None:
        """Add it, times a factor, to a flat array (n,)."""

    def subtract_from(self, values: Any) -> None:
        """Subtract it from a flat array (n,)."""
        self.add_to(values, -1.0)

    @abstractmethod
    def clear(self, values: Any) -> None:
        """Set a flat array (n,) to zero where elements are not left out."""

    def array(self, spec: GradientSpec) -> np.ndarray:
        """Return it as a new array on the host, of the shape and dtype of a spec."""
        out = np.zeros(spec.shape, spec.dtype)
        self.add_to(out.reshape(-1), 1.0)
        return out


@dataclass(frozen=True)
class EmptyGradient(DecodedGradient):
    """Decoded gradient of zeros."""

    count = 0

    def add_to(self, out: Any, factor: float) -> None:
        """Do nothing."""

    def clear(self, values: Any) -> None:
        """Do nothing."""


class FullGradient(DecodedGradient):
    """Base of decoded gradients of all elements, `values` (n,)."""

    values: Any

    @property
    def count(self) -> int:
        """All elements."""
        return len(self.values)

    def add_to(self, out: Any, factor: float) -> None:
        """Add all elements."""
        accumulate(self.values, factor, out, 1.0, out)

    def subtract_from(self, values: Any) -> None:
        """Subtract all elements."""
        values -= self.values

    def clear(self, values: Any) -> None:
        """Set all elements to zero."""
        values[:] = 0


@dataclass(frozen=True, eq=False)
class DenseGradient(FullGradient):
    """Decoded gradient of all elements.

    Parameters
    ----------
    values : numpy.ndarray or torch.Tensor
        Flat (n,).
    """

    values: Any


@dataclass(frozen=True, eq=False)
class LowRankGradient(FullGradient):
    """Decoded gradient that is the product of two factors.

    Parameters
    ----------
    left : numpy.ndarray or torch.Tensor
        (m, r)
    right : numpy.ndarray or torch.Tensor
        (p, r)
    """

    left: Any
    right: Any

    @property
    def count(self) -> int:
        """All elements."""
        return len(self.left) * len(self.right)

    @property
    def values(self) -> Any:
        """Product of the factors, flat (m · p,); exact order of sums on hosts."""
        on_host = isinstance(self.left, np.ndarray)
        values = product(self.left, self.right.T) if on_host else self.left @ self.right.T
        return values.reshape(-1)


@dataclass(frozen=True, eq=False)
class SparseGradient(DecodedGradient):
    """Decoded gradient of some elements.

    Parameters
    ----------
    positions : numpy.ndarray or torch.Tensor
        (k,) int64, strictly ascending, below n (not checked here).
    values : numpy.ndarray or torch.Tensor
        (k,)
    """

    positions: Any
    values: Any

    @property
    def count(self) -> int:
        """Elements that are sent, k."""
        return len(self.positions)

    def add_to(self, out: Any, factor: float) -> None:
        """Add the elements at their places."""
        if isinstance(out, np.ndarray):
            native.gradients_scatter_add(self.positions, self.values, factor, out)
        else:
            out[self.positions] += self.values * factor

    def clear(self, values: Any) -> None:
        """Set the elements at their places to zero."""
        values[self.positions] = 0
