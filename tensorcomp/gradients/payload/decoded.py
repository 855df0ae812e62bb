"""What a payload decodes to, in the form that costs least: all elements, some, or none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from tensorcomp.kernels import native


class DecodedGradient(ABC):
    """What a payload decodes to: a vector of the gradient's elements in row-major order."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Elements that are not left out."""

    @abstractmethod
    def add_to(self, out: np.ndarray, factor: float) -> None:
        """Add it, times a factor, to a flat array (n,)."""

    @abstractmethod
    def subtract_from(self, values: np.ndarray) -> None:
        """Subtract it from a flat array (n,)."""

    @abstractmethod
    def clear(self, values: np.ndarray) -> None:
        """Set a flat array (n,) to zero where something was sent."""


@dataclass(frozen=True)
class EmptyGradient(DecodedGradient):
    """No element at all."""

    count = 0

    def add_to(self, out: np.ndarray, factor: float) -> None:
        """Do nothing."""

    def subtract_from(self, values: np.ndarray) -> None:
        """Do nothing."""

    def clear(self, values: np.ndarray) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class DenseGradient(DecodedGradient):
    """Every element.

    Parameters
    ----------
    values : numpy.ndarray
        Flat (n,).
    """

    values: np.ndarray

    @property
    def count(self) -> int:
        """All elements."""
        return int(self.values.size)

    def add_to(self, out: np.ndarray, factor: float) -> None:
        """Add all elements."""
        native.gradients_accumulate(self.values, factor, out, 1.0, out)

    def subtract_from(self, values: np.ndarray) -> None:
        """Subtract all elements."""
        np.subtract(values, self.values, out=values)

    def clear(self, values: np.ndarray) -> None:
        """Set all elements to zero."""
        values[:] = 0


@dataclass(frozen=True)
class SparseGradient(DecodedGradient):
    """Some elements.

    Parameters
    ----------
    positions : numpy.ndarray
        (k,) int64, strictly ascending, below n: whoever makes one has checked that.
    values : numpy.ndarray
        (k,)
    """

    positions: np.ndarray
    values: np.ndarray

    @property
    def count(self) -> int:
        """K."""
        return int(self.positions.size)

    def add_to(self, out: np.ndarray, factor: float) -> None:
        """Add the elements at their places."""
        native.gradients_scatter_add(self.positions, self.values, factor, out)

    def subtract_from(self, values: np.ndarray) -> None:
        """Subtract the elements at their places."""
        native.gradients_scatter_add(self.positions, self.values, -1.0, values)

    def clear(self, values: np.ndarray) -> None:
        """Set the elements at their places to zero."""
        values[self.positions] = 0
