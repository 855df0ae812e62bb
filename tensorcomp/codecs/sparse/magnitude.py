"""Unstructured pruning by magnitude, to an exact sparsity."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.sparse.largest import Largest
from tensorcomp.codecs.strategy import Strategy


@dataclass(frozen=True)
class Magnitude(Largest):
    """Set a fraction of the elements to zero, those of lowest magnitude.

    Of n elements round(sparsity × n), ties to even, are set to +0.0: the first ones in the order of
    (magnitude, index in row-major order). Of a tensor in chunks they are chosen among all elements
    of the tensor.

    Parts: ``mask``, bool, of the array's shape, true where elements are kept; ``values``, those
    elements as they are, one-dimensional, of the array's dtype, in row-major order.

    Error: the square root of the sum of the squares of the elements that are set to zero; no other
    choice of as many has a lower one. Kept elements are exact unless their subtree loses something.

    Parameters
    ----------
    sparsity : float
        From 0 to 1.
    count : int, optional
        Elements to set to zero, in place of a part of them; all, if there are fewer.

    Notes
    -----
    Cost: O(n), 3 to 8 ns an element to encode, 1 ns to decode, without the parts' coders. Not for
    small errors of dense weights: at equal error fewer bits are needed for weights that are rounded
    (`uniform`) than for weights that are left out. Not for arrays with NaN or infinity.

    References
    ----------
    Han, Pool, Tran & Dally 2015, "Learning both weights and connections for efficient neural
    networks"; with `values` coded by a codebook: Han, Mao & Dally 2016, "Deep Compression".
    """

    id: ClassVar[str] = "magnitude"
    first: ClassVar[bool] = False
    strategies: ClassVar[tuple[Strategy, ...]] = (
        Strategy("50 % zeros", "magnitude(0.5, values=uniform($step))", 6),
        Strategy("90 % zeros", "magnitude(0.9, values=uniform($step))", 6),
        Strategy("Deep Compression", "magnitude(0.9, mask=gaps, values=kmeans(16, codes=huffman))"),
    )
    sparsity: float = argument(0.5, least=0, most=1)
    count: int | None = argument(None, least=0)

    def kept(self, size: int) -> int:
        """Return how many of `size` elements are kept."""
        if self.count is None:
            return size - round(self.sparsity * size)
        return max(size - self.count, 0)

    def keeping(self, kept: int, size: int) -> Magnitude:
        """Return the codec that keeps `kept` of `size` elements."""
        return replace(self, count=size - kept)
