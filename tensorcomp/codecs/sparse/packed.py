"""Arrays with n : m sparsity: which elements of each group are there, and what they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.base import ArraySpec, Transform
from tensorcomp.codecs.bit_views import as_rows, as_words
from tensorcomp.codecs.sparse.nm import NM
from tensorcomp.codecs.sparse.selection import kept_values, put_back
from tensorcomp.errors import NotRepresentable
from tensorcomp.kernels import native


@dataclass(frozen=True)
class NMPacked(Transform):
    """Store `keep` elements of each group of neighbours in a row; all others are zero bits.

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
    for_zeros: ClassVar[bool] = True
    may_refuse: ClassVar[bool] = False
    zeros: ClassVar[str] = "passed on"
    default_parts: ClassVar[Mapping[str, str]] = {"mask": "ans", "values": "floats"}
    keep: int = 2
    group: int = 4

    def __post_init__(self) -> None:
        NM(self.keep, self.group)  # which knows its limits

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the specs of the groups' masks and of the values."""
        return NM(self.keep, self.group).parts(spec)

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return masks and values.

        Raises
        ------
        NotRepresentable
            If a group has more than `keep` elements that are not zero.
        """
        specs = self.parts(ArraySpec(array.shape, array.dtype))
        masks = np.empty(specs["mask"].shape, specs["mask"].dtype)
        words = as_rows(as_words(array))
        bits = 8 * words.itemsize
        native.selection_group_masks(words, bits, self.keep, self.group, masks)
        values = kept_values(array, NM(self.keep, self.group).spread(masks, array.shape, self.id))
        if np.count_nonzero(as_words(values)) != np.count_nonzero(words):
            raise NotRepresentable(f"packed: a group has more than {self.keep} of {self.group}")
        return {"mask": masks, "values": values.reshape(specs["values"].shape)}

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Put the values where the masks say."""
        mask = NM(self.keep, self.group).spread(parts["mask"], out.shape, self.id)
        put_back(mask, parts["values"], out, self.id)
