"""Arrays with n : m sparsity, stored as masks of groups and values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.bit_views import as_words
from tensorcomp.codecs.sparse.nm import NM
from tensorcomp.codecs.strategy import Strategy
from tensorcomp.errors import NotRepresentable


@dataclass(frozen=True)
class NMPacked(NM):
    """Store `keep` elements of each group of neighbours in a row.

    All others are zero bits.

    A row is the array without its first axis, flat; a vector is one row. The last group of a row
    may be shorter. Of a group with fewer elements that are not zero its first zeros are stored too.
    −0.0 has a bit and counts as an element that is not zero.

    Parts: ``mask``, unsigned of 8 bits, or 16 for groups of more than 8, (rows, groups of a row):
    the bits of the stored elements, the first in the lowest bit; ``values``, those elements, (rows,
    stored elements of a row), of the array's dtype.

    Lossless. Cost: O(n group), 3 ns an element in groups of 4 to encode, 2 ns to decode, without
    the parts' coders; the mask takes log2 C(group, keep) bits a group behind an entropy coder, 0.65
    bit an element for 2 of 4. For what n : m pruning leaves. Not where groups hold fewer elements
    than `keep` as a rule (`sparse`), nor for elements of 16 bytes.

    Parameters
    ----------
    keep : int
        From 1 to `group`.
    group : int
        Up to 16.

    References
    ----------
    Mishra et al. 2021, "Accelerating sparse deep neural networks".
    """

    id: ClassVar[str] = "packed"
    lossless: ClassVar[bool] = True
    for_zeros: ClassVar[bool] = True
    may_refuse: ClassVar[bool] = False
    strategies: ClassVar[tuple[Strategy, ...]] = ()

    def is_promising(self, sample: np.ndarray, rows: int) -> bool:
        """Return true: it loses nothing."""
        return True

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return masks and values."""
        parts = self.split(array, 8 * array.itemsize)
        if np.count_nonzero(as_words(parts["values"])) != np.count_nonzero(as_words(array)):
            raise NotRepresentable(f"packed: a group has more than {self.keep} of {self.group}")
        return parts
