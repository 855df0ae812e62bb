"""Elements drawn at random by a seed, so that no mask is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import ArraySpec, Codec, Transform
from tensorcomp.codecs.rounding import widened
from tensorcomp.codecs.sparse.masks import kept_values, restore
from tensorcomp.codecs.sparse.selection import check_keep, kept_count, row_pieces, whole_tensor
from tensorcomp.kernels import native

_WORD = 1 << 64


@dataclass(frozen=True)
class RandomK(Transform):
    """Keep an exact number of elements, drawn by a seed; set others to zero.

    The element of index i draws the number i + 1 of the SplitMix64 sequence that the mixed seed
    begins; the lowest numbers win. All of them differ, so the count is exact, and which elements
    are kept depends on nothing but seed, size and count. Of a tensor in chunks the elements are
    drawn from the whole tensor.

    Parts: ``state``, uint64, three: the seed, the index of the array's first element, and the
    greatest number that wins; ``values``, the kept elements as they are, one-dimensional, of the
    array's dtype, in row-major order.

    Error: that of leaving out elements at random: of the squared norm a part of 1 − keep is lost on
    average. Kept elements are exact, and not scaled up, unless their subtree loses something.

    Parameters
    ----------
    keep : int or float
        An integer is a count of elements, all of them if there are fewer. A float below 1 is
        a part of them, rounded, ties to even.
    seed : int
        From 0 to 2**64 - 1.
    offset : int
        Index of the array's first element in a larger tensor.

    Notes
    -----
    Cost: O(n), 3 ns an element to encode, 2 ns to decode, without the coder of the values. For
    gradients of workers that share a seed, since equal places can be summed as they are. Not for
    weights: `magnitude` keeps those that matter. Not for arrays with NaN or infinity.

    References
    ----------
    Konečný et al. 2016, "Federated learning: strategies for improving communication efficiency";
    Stich, Cordonnier & Jaggi 2018, "Sparsified SGD with memory"; the generator: Steele, Lea &
    Flood 2014, "Fast splittable pseudorandom number generators".
    """

    id: ClassVar[str] = "randomk"
    lossless: ClassVar[bool] = False
    zeros: ClassVar[str] = "passed on"
    default_parts: ClassVar[Mapping[str, str]] = {"state": "raw", "values": "floats"}
    keep: int | float = 0.01
    seed: int = argument(0, least=0, most=_WORD - 1)
    offset: int = argument(0, least=0, most=_WORD - 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_keep(self.keep)

    def _draw(self, size: int) -> np.ndarray:
        """Return the state for an array of `size` elements; the limit counts if any are kept."""
        state = np.array([self.seed, self.offset, 0], np.uint64)
        if keep := kept_count(self.keep, size):
            native.selection_draw_limit(self.seed, self.offset, size, keep, state[2:])
        return state

    def per_chunk(self, array: np.ndarray, bounds: Sequence[tuple[int, int]]) -> list[Codec]:
        """Return for each chunk the codec that keeps its share of the elements.

        They are drawn from the whole tensor.
        """
        size = whole_tensor(array, bounds, self.id).size
        some = kept_count(self.keep, size) > 0
        limit = int(self._draw(size)[2])
        codecs: list[Codec] = []
        for start, stop in row_pieces(array, bounds):
            first = (self.offset + start) % _WORD
            count = stop - start if some else 0
            kept = native.selection_count_draws(self.seed, first, count, limit)
            codecs.append(replace(self, keep=kept, offset=first))
        return codecs

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the spec of the state, and that of the values."""
        return {"state": ArraySpec((3,), np.dtype("<u8")), "values": ArraySpec((-1,), spec.dtype)}

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return state and values."""
        widened(array, self.id)
        state = self._draw(array.size)
        keep = kept_count(self.keep, array.size)
        values = kept_values(array, _mask(state, array.shape, keep))
        return {"state": state, "values": values}

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Put the values where the numbers drawn are low enough."""
        mask = _mask(parts["state"], out.shape, parts["values"].size)
        restore(self, mask, parts["values"], out)


def _mask(state: np.ndarray, shape: tuple[int, ...], keep: int) -> np.ndarray:
    mask = np.zeros(shape, np.bool_)
    if keep:
        seed, offset, limit = (int(number) for number in state)
        native.selection_mark_draws(seed, offset, limit, mask.reshape(-1))
    return mask
