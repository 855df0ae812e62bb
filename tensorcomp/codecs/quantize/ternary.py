"""Three values: plus or minus a scale for each group, and zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import ArraySpec, Transform
from tensorcomp.codecs.quantize.groups import MAX_GROUP, Groups, grouped_parts, short
from tensorcomp.codecs.rounding import widened
from tensorcomp.codecs.strategy import Strategy
from tensorcomp.errors import CodecError


@dataclass(frozen=True)
class Ternary(Transform):
    """Replace small elements by 0 and others by plus or minus their group's mean magnitude.

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
    lossless: ClassVar[bool] = False
    elementwise: ClassVar[bool] = True
    strategies: ClassVar[tuple[Strategy, ...]] = (Strategy("ternary", "ternary"),)
    default_parts: ClassVar[Mapping[str, str]] = {"scales": "fields", "codes": "ans"}
    threshold: float = argument(0.7, above=0, most=10**6)
    group: int = argument(-1, least=-1, most=MAX_GROUP)

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the specs of a scale for each group and of the codes."""
        return grouped_parts(spec, self.group, "codes", np.int8)

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return scales and codes.

        Raises
        ------
        NotRepresentable
            If the array holds no finite floats, or their sum is beyond the largest float64.
        """
        values = widened(array, "ternary")
        groups = Groups.of(array.shape, self.group)
        means = groups.mean_above(values, np.full(groups.count, -1, values.dtype), "ternary")
        with np.errstate(over="ignore"):
            floors = (self.threshold * means.astype(np.float64)).astype(values.dtype)
        scales = short(groups.mean_above(values, floors, "ternary"))
        codes = groups.signs_above(values, floors)
        return {"scales": scales, "codes": codes.reshape(array.shape)}

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Multiply."""
        codes = parts["codes"]
        if codes.size and (codes.max() > 1 or codes.min() < -1):
            raise CodecError("ternary: a code is not -1, 0 or 1")
        Groups.of(out.shape, self.group).restore(codes, parts["scales"], out, "ternary")
