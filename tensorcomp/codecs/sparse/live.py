"""Arrays of which whole rows or columns are zero: which ones live, and those."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import ArraySpec, Transform
from tensorcomp.codecs.bit_views import as_words
from tensorcomp.codecs.sparse.masks import kept_values, masked_parts, restore, sound_mask, spread
from tensorcomp.errors import CodecError, NotRepresentable


@dataclass(frozen=True)
class NonzeroSlices(Transform):
    """Cut away the slices along an axis in which all bits are zero.

    Slices of axis 0 are rows, or a convolution's filters, those of axis 1 columns, or its input
    channels. ``live(values=live(1))`` cuts away both. A slice that holds −0.0 is kept.

    Parts: ``mask``, bool, one a slice, true where it is kept, empty for an array without elements;
    ``values``, of the array's dtype, the kept slices: the array's shape with a shorter axis. Of a
    tensor in chunks each finds its own slices.

    Lossless. Cost: O(n), 0.6 to 1.2 ns an element each way, without the coder of the values. For
    what structured pruning leaves. Not where the zeros lie elsewhere (`sparse`), nor for elements
    of 16 bytes, nor for arrays of less than two axes.

    Parameters
    ----------
    axis : int
        0 or 1.

    References
    ----------
    Wen et al. 2016, "Learning structured sparsity in deep neural networks"; Li et al. 2017,
    "Pruning filters for efficient ConvNets".
    """

    id: ClassVar[str] = "live"
    for_zeros: ClassVar[bool] = True
    may_refuse: ClassVar[bool] = False
    zeros: ClassVar[str] = "passed on"
    default_parts: ClassVar[Mapping[str, str]] = {"mask": "gaps", "values": "floats"}
    axis: int = argument(0, choices=(0, 1))

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the mask's spec, and that of as many slices as the data decide."""
        shape = list(spec.shape) if len(spec.shape) > 1 else [0, 0]
        slices = shape[self.axis] if 0 not in shape else 0
        shape[self.axis] = -1
        return masked_parts(spec, (slices,), shape)

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return mask and kept slices."""
        if array.ndim < 2:
            raise NotRepresentable(f"live: expected two axes or more, got {array.shape}")
        if not array.size:
            none = array[:0] if self.axis == 0 else array[:, :0]
            return {"mask": np.zeros(0, np.bool_), "values": none}
        bits = as_words(array).reshape(array.shape[0], -1)
        if self.axis == 1:
            bits = np.bitwise_or.reduce(bits, axis=0).reshape(array.shape[1], -1)
        mask = np.bitwise_or.reduce(bits, axis=1) != 0
        values = kept_values(array, spread(mask, self.axis, array.shape))
        shape = list(array.shape)
        shape[self.axis] = int(np.count_nonzero(mask))
        return {"mask": mask, "values": values.reshape(shape)}

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Put the slices where the mask says, zeros elsewhere."""
        if out.ndim < 2:
            raise CodecError(f"live: expected two axes or more, got {out.shape}")
        if out.size:
            mask = sound_mask(parts["mask"], self.id)
            restore(self, spread(mask, self.axis, out.shape), parts["values"], out)
