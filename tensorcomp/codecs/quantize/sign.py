"""One bit an element: its sign, with a scale for each group."""

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
class Sign(Transform):
    """Replace each element by plus or minus the mean magnitude of its group; zeros count as plus.

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
    lossless: ClassVar[bool] = False
    elementwise: ClassVar[bool] = True
    strategies: ClassVar[tuple[Strategy, ...]] = (Strategy("sign", "sign"),)
    default_parts: ClassVar[Mapping[str, str]] = {"scales": "fields", "signs": "bitpack"}
    group: int = argument(-1, least=-1, most=MAX_GROUP)

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the specs of a scale for each group and of the signs."""
        return grouped_parts(spec, self.group, "signs", np.bool_)

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return scales and signs.

        Raises
        ------
        NotRepresentable
            If the array holds no finite floats, or their sum is beyond the largest float64.
        """
        values = widened(array, "sign")
        groups = Groups.of(array.shape, self.group)
        below_all = np.full(groups.count, -1, values.dtype)
        scales = short(groups.mean_above(values, below_all, "sign"))
        return {"scales": scales, "signs": (values < 0).reshape(array.shape)}

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Give each scale its signs."""
        signs = parts["signs"].view(np.int8)
        if signs.size and (signs.max() > 1 or signs.min() < 0):
            raise CodecError("sign: a byte of the signs is neither 0 nor 1")
        codes = 1 - 2 * signs.reshape(-1)
        Groups.of(out.shape, self.group).restore(codes, parts["scales"], out, "sign")
