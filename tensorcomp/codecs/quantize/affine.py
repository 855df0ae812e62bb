"""Integers of a fixed width, with a scale for each group of elements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import ArraySpec, Transform
from tensorcomp.codecs.quantize.groups import MAX_GROUP, Groups, rounding_in_groups, short
from tensorcomp.codecs.rounding import widened
from tensorcomp.codecs.strategy import Strategy
from tensorcomp.errors import CodecError, NotRepresentable

if TYPE_CHECKING:
    from tensorcomp.codecs.feedback import Matrix, Rounding

_FAMILY = "groups of 128"
_SPARE = 0.25  # of a step: how far a group may reach beyond its outermost code


@dataclass(frozen=True)
class Affine(Transform):
    """Round each element to one of 2**bits evenly spaced numbers.

    They lie between the ends of its group.

    What is known as int8, int4 with groups of 128, and so on. Symmetric codes go from -m to m for
    m = 2**(bits - 1) - 1, and zero stays zero; asymmetric ones from 0 to 2**bits - 1, from the
    smallest to the largest element of the group.

    Parts: ``scales``, one a group, float32 (float64 for float64 arrays) of 11 significant bits: the
    width of a step. ``zeros``, only if asymmetric, of the same type: the value of code 0, which is
    the group's smallest element. ``codes``, of the array's shape, int8 if symmetric and uint8 if
    not. A value is code × scale (+ zero) in float64, rounded to the array's dtype.

    Error: at most half a step of its group for an element, which is (greatest magnitude) / (2m), or
    (largest - smallest) / (2**(bits + 1) - 2), and 1 in 4,000 more for the short scale; rounding to
    the array's dtype comes on top.

    Parameters
    ----------
    bits : int
        2 to 8.
    group : int
        Elements of a row that share a scale, -1 for a whole row (first axis), 0 for the whole array
        (a chunk of it, where a tensor is cut into chunks).
    symmetric : bool

    Notes
    -----
    Cost: O(n), about 1 ns an element to encode and 0.3 to 0.8 ns to decode. Not for the smallest
    size at an error: `uniform`, one step for all and an entropy coder, has 4 dB less error than
    packed codes of four bits at equal size, and 0.8 dB less than the same codes behind
    ``ans(contexts=8)``. Not for arrays with NaN or infinity.

    References
    ----------
    Jacob et al. 2018, "Quantization and Training of Neural Networks for Efficient
    Integer-Arithmetic-Only Inference"; groups: Shen et al. 2020, "Q-BERT".
    """

    id: ClassVar[str] = "affine"
    lossless: ClassVar[bool] = False
    elementwise: ClassVar[bool] = True
    strategies: ClassVar[tuple[Strategy, ...]] = (
        *(
            Strategy(f"{bits} bits in {_FAMILY}", f"affine({bits}, 128)", family=_FAMILY)
            for bits in (2, 3, 4, 6, 8)
        ),
        Strategy("int8 rows", "affine(8, -1)"),
    )
    default_parts: ClassVar[Mapping[str, str]] = {
        "scales": "fields",
        "zeros": "fields",
        "codes": "bitpack",
    }
    bits: int = argument(4, least=2, most=8)
    group: int = argument(128, least=-1, most=MAX_GROUP)
    symmetric: bool = True

    @property
    def needs_feedback(self) -> bool:  # type: ignore[override]
        """Whether steps are coarse: fewer than four bits."""
        return self.bits < 4

    @property
    def _top(self) -> int:
        """The largest code."""
        return (1 << (self.bits - 1)) - 1 if self.symmetric else (1 << self.bits) - 1

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the specs of scales, zeros and codes.

        There is a scale for each group; there are zeros if codes are asymmetric.
        """
        scales = Groups.of(spec.shape, self.group).spec(spec.dtype)
        codes = ArraySpec(spec.shape, np.dtype(np.int8 if self.symmetric else np.uint8))
        if self.symmetric:
            return {"scales": scales, "codes": codes}
        return {"scales": scales, "zeros": scales, "codes": codes}

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return scales, zeros if there are any, and codes."""
        values = widened(array, "affine")
        groups = Groups.of(array.shape, self.group)
        if self.symmetric:
            scales = self._steps(groups.greatest(values).astype(np.float64), values.dtype)
            codes = np.rint(groups.normalize(values, scales)).astype(np.int8)
            return {"scales": scales, "codes": codes.reshape(array.shape)}
        least, most = groups.extremes(values)
        with np.errstate(over="ignore"):
            reach = most.astype(np.float64) - least
        if not np.isfinite(reach).all():
            raise NotRepresentable("affine: a group reaches over more than the largest float64")
        scales = self._steps(reach, values.dtype)
        codes = np.rint(groups.normalize(values, scales, least)).astype(np.uint8)
        return {"scales": scales, "zeros": least, "codes": codes.reshape(array.shape)}

    def _steps(self, reach: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """Return steps of which the largest code and a quarter more covers what groups reach."""
        steps = short((reach / self._top).astype(dtype))
        with np.errstate(over="ignore"):
            covered = steps.astype(np.float64) * (self._top + _SPARE)
        wider = np.nextafter(steps, dtype.type(np.inf))  # for steps of few subnormal bits
        return np.where(covered < reach, wider, steps)

    def rounding(self, matrix: Matrix) -> Rounding | None:
        """Return the rounding to each group's steps; None for scattered elements."""
        if matrix.in_order is None:
            return None
        exact, least = self.encode(matrix.coded()), -self._top if self.symmetric else 0
        levels = range(least, self._top + 1)
        return rounding_in_groups(matrix, self.group, levels, exact["scales"], exact.get("zeros"))

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Multiply, and add the zeros if there are any."""
        codes = parts["codes"]
        if codes.size and (codes.max() > self._top or codes.min() < -self._top):
            raise CodecError(f"affine: a code is not within {self.bits} bits")
        groups = Groups.of(out.shape, self.group)
        groups.restore(codes, parts["scales"], out, "affine", parts.get("zeros"))
