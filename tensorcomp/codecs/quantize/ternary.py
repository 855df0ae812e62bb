"""Three values: plus or minus a scale for each group, and zero."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.quantize.groups import MAX_GROUP, GroupQuantizer, Groups, short
from tensorcomp.codecs.strategy import Strategy
from tensorcomp.errors import CodecError

if TYPE_CHECKING:
    from tensorcomp.codecs.feedback import Matrix, Rounding


@dataclass(frozen=True)
class Ternary(GroupQuantizer):
    """Replace small elements by 0, others by ± their group's mean magnitude.

    Small is what is not above `threshold` × the mean magnitude of the group; the scale is the mean
    magnitude of the others.

    Parts: ``scales``, one a group, float32 (float64 for float64 arrays) of 11 significant bits; 0
    where a group has no others. ``codes``, int8, of the array's shape: -1, 0 or 1. A value is
    code × scale, rounded to the array's dtype.

    Error: of an element that becomes 0, at most `threshold` × the mean magnitude; of others, at
    most the larger of (scale - that) and (greatest magnitude - scale). Of a Gaussian the mean
    square is 19 % (7.2 dB) with the default threshold, which is close to the best.

    Parameters
    ----------
    threshold : float
        In mean magnitudes; above 0, at most a million.
    group : int
        Elements of a row that share a scale, -1 for a whole row (first axis), 0 for the whole array
        (a chunk of it, where a tensor is cut into chunks).

    Notes
    -----
    Cost: O(n), 2 ns an element to encode and 0.3 to 0.8 ns to decode, without the codes' coder,
    which takes at most 1.58 bits an element. For networks trained to have such weights; others do
    not survive it.

    References
    ----------
    Li, Zhang & Liu 2016, "Ternary Weight Networks".
    """

    id: ClassVar[str] = "ternary"
    strategies: ClassVar[tuple[Strategy, ...]] = (Strategy("ternary", "ternary"),)
    default_parts: ClassVar[Mapping[str, str]] = {"scales": "fields", "codes": "ans"}
    levels: ClassVar[Sequence[float]] = (-1.0, 0.0, 1.0)
    threshold: float = argument(0.7, above=0, most=10**6)
    group: int = argument(-1, least=-1, most=MAX_GROUP)

    def quantize(self, values: np.ndarray, groups: Groups) -> tuple[np.ndarray, np.ndarray]:
        """Return scales and codes."""
        means = groups.mean_above(values, None, self.id)
        with np.errstate(over="ignore"):
            floors = (self.threshold * means.astype(np.float64)).astype(values.dtype)
        scales = short(groups.mean_above(values, floors, self.id))
        return scales, groups.signs_above(values, floors)

    def rounding(self, matrix: Matrix) -> Rounding | None:
        """Return that of any groups; None if what is rounded may become 0."""
        return super().rounding(matrix) if self.threshold < 1 else None

    def multiples(self, codes: np.ndarray) -> np.ndarray:
        """Return the codes."""
        if codes.size and (codes.max() > 1 or codes.min() < -1):
            raise CodecError("ternary: a code is not -1, 0 or 1")
        return codes
