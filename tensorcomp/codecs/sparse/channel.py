"""Structured pruning of input channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensorcomp.codecs.sparse.slices import PrunedSlices
from tensorcomp.codecs.strategy import Strategy


@dataclass(frozen=True)
class Channel(PrunedSlices):
    """Set a fraction of the input channels to zero, those of lowest L2 norm.

    Channels are slices along the second axis.

    Of c channels round(sparsity × c), ties to even, are set to +0.0; of equal norms the first ones
    are. Of a tensor in chunks, norms are those of the whole tensor's channels.

    Parts: ``mask``, bool, one a channel, true where it is kept; ``values``, of the array's dtype,
    the kept channels as they are: the array's shape with a shorter second axis.

    Error: the norm of the channels that are set to zero. Kept channels are exact unless their
    subtree loses something.

    Notes
    -----
    Cost: O(n), 3 ns an element to encode, 1 ns to decode, without the coder of the values. For
    layers whose input channels will be cut away for good, together with what computes them. Not for
    small errors: channels of trained networks are seldom near zero. Not for arrays with NaN or
    infinity, nor of less than two axes.

    References
    ----------
    He, Zhang & Sun 2017, "Channel pruning for accelerating very deep neural networks".
    """

    id: ClassVar[str] = "channel"
    axis: ClassVar[int] = 1
    strategies: ClassVar[tuple[Strategy, ...]] = (
        Strategy("10 % of channels off", "channel(0.1, values=uniform($step))", 6),
    )
