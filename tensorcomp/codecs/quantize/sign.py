"""One bit an element: its sign, with a scale for each group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.quantize.groups import MAX_GROUP, GroupQuantizer, Groups, short
from tensorcomp.codecs.strategy import Strategy
from tensorcomp.errors import CodecError


@dataclass(frozen=True)
class Sign(GroupQuantizer):
    """Replace each element by its sign times its group's mean magnitude.

    Zeros count as plus; a group of zeros has the scale 0, and stays.

    Parts: ``scales``, one a group, float32 (float64 for float64 arrays) of 11 significant bits.
    ``signs``, bool, of the array's shape: true where the element is below 0. A value is ±scale,
    rounded to the array's dtype.

    Error: the larger of the scale and (greatest magnitude - scale) of its group for an element. No
    other scale gives less squared error: Σx² - n·scale² in a group of n, which of a Gaussian is
    36 % (4.4 dB).

    Parameters
    ----------
    group : int
        Elements of a row that share a scale, -1 for a whole row (first axis), 0 for the whole array
        (a chunk of it, where a tensor is cut into chunks).

    Notes
    -----
    Cost: O(n), about 1 ns an element to encode and 0.3 to 0.8 ns to decode. For gradients with
    error feedback and for networks trained to have such weights; other networks do not survive it.

    References
    ----------
    Seide et al. 2014, "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel
    Distributed Training of Speech DNNs"; Rastegari et al. 2016, "XNOR-Net".
    """

    id: ClassVar[str] = "sign"
    strategies: ClassVar[tuple[Strategy, ...]] = (Strategy("sign", "sign"),)
    default_parts: ClassVar[Mapping[str, str]] = {"scales": "fields", "signs": "bitpack"}
    zeros: ClassVar[str] = "lost"
    codes: ClassVar[str] = "signs"
    codes_dtype: ClassVar[type[np.generic]] = np.bool_
    levels: ClassVar[Sequence[float]] = (-1.0, 1.0)
    group: int = argument(-1, least=-1, most=MAX_GROUP)

    def quantize(self, values: np.ndarray, groups: Groups) -> tuple[np.ndarray, np.ndarray]:
        """Return scales and signs."""
        return short(groups.mean_above(values, None, self.id)), values < 0

    def multiples(self, codes: np.ndarray) -> np.ndarray:
        """Return -1 where a sign is set, 1 elsewhere."""
        signs = codes.view(np.int8)
        if signs.size and (signs.max() > 1 or signs.min() < 0):
            raise CodecError("sign: a byte of the signs is neither 0 nor 1")
        return 1 - 2 * signs
