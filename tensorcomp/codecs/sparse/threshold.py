"""The elements above a threshold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.bit_views import as_words
from tensorcomp.codecs.rounding import widened
from tensorcomp.codecs.sparse.masks import Pruning, kept_values
from tensorcomp.codecs.sparse.selection import positions_above


@dataclass(frozen=True)
class Threshold(Pruning):
    """Keep the elements whose magnitude is at least `value`; set others to zero.

    Parts: ``mask``, bool, of the array's shape, true where elements are kept; ``values``, those
    elements as they are, one-dimensional, of the array's dtype, in row-major order. A tree's text
    may call the mask ``indices``.

    Error: less than `value` for each element. Kept elements are exact unless their subtree loses
    something.

    Parameters
    ----------
    value : float
        At least 0, in the unit of the elements.

    Notes
    -----
    Cost: O(n), 2 ns an element to encode, 1 ns to decode, without the parts' coders. Not where a
    sparsity is wanted (`magnitude`, `topk`), which no threshold gives where magnitudes are equal;
    not for arrays with NaN or infinity.

    References
    ----------
    Strom 2015, "Scalable distributed DNN training using commodity GPU cloud computing".
    """

    id: ClassVar[str] = "threshold"
    part_aliases: ClassVar[Mapping[str, str]] = {"indices": "mask"}
    value: float = argument(least=0)

    @property
    def zeros(self) -> str:  # type: ignore[override]
        """Left out by the mask, if anything is."""
        return "apart" if self.value > 0 else "passed on"

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return mask and values."""
        wide = widened(array, self.id)
        mask = (np.abs(wide) >= least_number(self.value, wide.dtype)).reshape(array.shape)
        return {"mask": mask, "values": kept_values(array, mask)}

    def positions(self, array: np.ndarray) -> np.ndarray:
        """Return the flat indices of the elements that are kept, ascending, int64.

        Parameters
        ----------
        array : numpy.ndarray
            float32 or float64, finite.
        """
        least = as_words(np.array([least_number(self.value, array.dtype)]))[0]
        return positions_above(as_words(array).reshape(-1), int(least))


def least_number(value: float, dtype: np.dtype) -> np.floating:
    """Return the least number of a dtype that is not below `value`."""
    with np.errstate(over="ignore"):
        nearest: np.floating = dtype.type(value)
    if float(nearest) >= value:
        return nearest
    following: np.floating = np.nextafter(nearest, dtype.type(np.inf))
    return following
