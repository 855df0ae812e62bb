"""Exact selection by magnitude: what `topk` and `magnitude` share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.base import Codec
from tensorcomp.codecs.bit_views import as_words
from tensorcomp.codecs.rounding import widened
from tensorcomp.codecs.sparse import selection
from tensorcomp.codecs.sparse.masks import Pruning, kept_values


class Largest(Pruning):
    """Base class of codecs that keep an exact number of largest elements.

    Those of the greatest magnitude.

    Of a tensor in chunks the elements are chosen among all elements of the tensor.

    Attributes
    ----------
    first : bool
        Whether of equal magnitudes those of lower index are kept, or those of higher index.
    """

    first: ClassVar[bool]

    @abstractmethod
    def kept(self, size: int) -> int:
        """Return how many of `size` elements are kept."""

    @abstractmethod
    def keeping(self, kept: int, size: int) -> Codec:
        """Return the codec that keeps `kept` of `size` elements."""

    def per_chunk(self, array: np.ndarray, bounds: Sequence[tuple[int, int]]) -> list[Codec]:
        """Return for each chunk the codec that keeps its share of the elements."""
        words = selection.whole_tensor(array, bounds, self.id)
        pieces = selection.row_pieces(array, bounds)
        kept = selection.kept_in_pieces(words, self.kept(words.size), pieces, first=self.first)
        sizes = (stop - start for start, stop in pieces)
        return [self.keeping(k, size) for k, size in zip(kept, sizes, strict=True)]

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return mask and values."""
        widened(array, self.id)
        words = as_words(array).reshape(-1)
        keep = self.kept(words.size)
        positions = selection.few_largest(words, keep) if self.first else None
        if positions is None:
            mask = selection.mark_largest(words, keep, first=self.first).reshape(array.shape)
            return {"mask": mask, "values": kept_values(array, mask)}
        mask = np.zeros(array.shape, np.bool_)
        mask.reshape(-1)[positions] = True
        return {"mask": mask, "values": array.reshape(-1)[positions]}
