"""Masks of kept elements, shared by the codecs that prune."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tensorcomp.codecs.base import ArraySpec, Codec, Transform
from tensorcomp.codecs.bit_views import as_words, readable
from tensorcomp.codecs.rounding import as_matrix, check_float
from tensorcomp.errors import CodecError
from tensorcomp.kernels import native

if TYPE_CHECKING:
    from tensorcomp.codecs.feedback import Matrix, Rounding

_SMALL = 0.05  # of the root mean square: an element below it is next to nothing
_SPARSE = 0.5  # share of such elements from which masks may pay


class Pruning(Transform):
    """Base class of codecs that set elements to zero.

    By default by a mask of the array's shape.
    """

    lossless: ClassVar[bool] = False
    zeros: ClassVar[str] = "passed on"
    default_parts: ClassVar[Mapping[str, str]] = {"mask": "gaps", "values": "floats"}

    def is_promising(self, sample: np.ndarray, rows: int) -> bool:
        """Return whether most elements are next to nothing, so that a mask may pay."""
        matrix = as_matrix(sample)
        scale = np.sqrt(np.mean(matrix**2))
        return bool(np.mean(np.abs(matrix) < _SMALL * scale) >= _SPARSE)

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the specs of a mask of all elements and of the kept values."""
        return masked_parts(spec)

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Put the values where the mask says."""
        restore(self, parts["mask"], parts["values"], out)


def masked_parts(
    spec: ArraySpec, mask: tuple[int, ...] | None = None, values: Sequence[int] = (-1,)
) -> dict[str, ArraySpec]:
    """Return the specs of a mask and of the values that it keeps."""
    return {
        "mask": ArraySpec(spec.shape if mask is None else mask, np.dtype(np.bool_)),
        "values": ArraySpec(tuple(values), spec.dtype),
    }


def kept_values(array: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return the elements where a mask is true, in row-major order.

    The mask has the array's shape.
    """
    words = as_words(array).reshape(-1)
    # The kernel writes before it counts.
    values = np.empty(int(np.count_nonzero(mask)) + 1, words.dtype)
    native.selection_take(words, mask.reshape(-1), values)
    return values[:-1].view(array.dtype)


def rounding_of_kept(matrix: Matrix, kept: np.ndarray) -> Rounding | None:
    """Return how columns are rounded where only `kept`, (n, R), is not zero."""
    inner = replace(matrix, in_order=None).rounding_of("values")
    if inner is None:
        return None

    def round_column(i: int, targets: np.ndarray, ahead: np.ndarray | None) -> np.ndarray:
        found = inner(i, targets, ahead) + np.float32(0)  # no -0.0, whose bit masks would keep
        return np.where(kept[i], found, np.float32(0))

    return round_column


def restore(codec: Codec, mask: np.ndarray, values: np.ndarray, out: np.ndarray) -> None:
    """Fill `out` with the values where a mask is true, and zero bits elsewhere.

    The mask has the shape of `out`.
    """
    if not codec.lossless:
        check_float(out.dtype, codec.id)
    places = sound_mask(mask, codec.id).reshape(-1)
    count = int(np.count_nonzero(places))
    if count != values.size:
        raise CodecError(f"{codec.id}: expected {count} kept values, got {values.size}")
    words = as_words(out).reshape(-1)
    if count:
        native.selection_scatter(as_words(values).reshape(-1), places, words)
    else:
        words[:] = 0


def sound_mask(mask: np.ndarray, codec: str) -> np.ndarray:
    """Return a mask, C-contiguous and read-only."""
    mask = readable(mask)
    if mask.size and mask.view(np.uint8).max() > 1:
        raise CodecError(f"{codec}: a byte of the mask is neither 0 nor 1")
    return mask


def spread(mask: np.ndarray, axis: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return the mask of an array's elements from that of slices of an axis."""
    along = mask.reshape(-1, *[1] * (len(shape) - 1 - axis))
    return np.ascontiguousarray(np.broadcast_to(along, shape))
