"""Structured pruning of filters: whole rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensorcomp.codecs.sparse.slices import PrunedSlices


@dataclass(frozen=True)
class FilterRows(PrunedSlices):
    """Set a fraction of the filters to zero, those of lowest norm.

    Filters are rows of the first axis.

    Of r rows round(sparsity × r), ties to even, are set to +0.0; of equal L2 norms the first ones
    are. Of a tensor in chunks they are chosen among all rows of the tensor.

    Parts: ``mask``, bool, one a row, true where it is kept; ``values``, of the array's dtype, the
    kept rows as they are: the array's shape with a shorter first axis.

    Error: the norm of the rows that are set to zero. Kept rows are exact unless their subtree loses
    something.

    Notes
    -----
    Cost: O(n), 2 ns an element to encode, 1 ns to decode, without the coder of the values. For
    layers whose filters will be cut away for good. Not for small errors: filters of trained
    networks are seldom near zero. Not for arrays with NaN or infinity, nor of less than two axes.

    References
    ----------
    Li et al. 2017, "Pruning filters for efficient ConvNets".
    """

    id: ClassVar[str] = "filter"
    axis: ClassVar[int] = 0
