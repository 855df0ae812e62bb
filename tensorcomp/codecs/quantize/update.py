"""Code an array as what a step of training added to that of a base."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import ArraySpec, Transform
from tensorcomp.codecs.rounding import (
    as_reals,
    check_float,
    require_finite,
    store,
    widened,
    work_dtype,
)
from tensorcomp.errors import CodecError, NotRepresentable


@dataclass(frozen=True)
class Update(Transform):
    """Subtract the same elements of a base; a quantizer codes what is left.

    What training changed since the base was saved is far smaller than the weights, so that a step
    in proportion to it costs few bits. The reference is what a decoder has of the base: where that
    lost something itself, the update makes up for it, and errors do not add up along a chain.

    Parts: ``values``, float32 (float64 for float64 arrays), of the array's shape: element −
    reference, in that type. An element is reference + gain × value, each rounded to that type, kept
    within the largest numbers of the array's, and rounded to that.

    Error: that of ``values``, times the gain, and rounding.

    Parameters
    ----------
    gain : float
        1 for the least error. Coarse quantizers return the mean of what a code stands for, which
        has less energy: training goes on from further back. With 1 / (1 − D), for a relative
        squared error D, the update is as long in its own direction as it was.

    Notes
    -----
    Cost: O(n), about 1 ns an element. Not for arrays without a base, nor for those that hold NaN or
    infinity. Lossless codes of an array given its base are those of ``difference``.

    References
    ----------
    "ExCP: Extreme LLM Checkpoint Compression", arXiv 2406.11257, without its thresholds.

    Examples
    --------
    >>> import numpy as np
    >>> from tensorcomp.codecs.quantize.update import Update
    >>> new, old = np.float32([1.5, 2.25]), np.float32([1, 2])
    >>> Update().encode(new, reference=old)["values"].tolist()
    [0.5, 0.25]
    """

    id: ClassVar[str] = "update"
    lossless: ClassVar[bool] = False
    uses_reference: ClassVar[bool] = True
    since_format: ClassVar[int] = 10
    off_wire: ClassVar[str] = "a gradient has no base"
    default_parts: ClassVar[Mapping[str, str]] = {"values": "floats"}
    gain: float = argument(1.0, above=0)

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the spec of the values."""
        return {"values": ArraySpec(spec.shape, work_dtype(spec.dtype))}

    def fit(self, array: np.ndarray, *, reference: np.ndarray | None = None) -> bytes:
        """Return nothing: all that chunks share is what they are coded against."""
        return b""

    def encode(
        self, array: np.ndarray, shared: bytes = b"", *, reference: np.ndarray | None = None
    ) -> dict[str, np.ndarray]:
        """Return the values."""
        wide = widened(array, self.id)
        if reference is None or (reference.shape, reference.dtype) != (array.shape, array.dtype):
            raise NotRepresentable(f"{self.id}: expected a reference of the array's shape and type")
        with np.errstate(all="ignore"):
            values = wide - widened(reference, self.id)
        require_finite(values, self.id)
        return {"values": values}

    def decode(
        self,
        parts: Mapping[str, np.ndarray],
        out: np.ndarray,
        shared: bytes = b"",
        *,
        reference: np.ndarray | None = None,
    ) -> None:
        """Add the values to the reference."""
        check_float(out.dtype, self.id)
        if reference is None or (reference.shape, reference.dtype) != (out.shape, out.dtype):
            raise CodecError(f"{self.id}: expected the reference that it was encoded with")
        with np.errstate(all="ignore"):
            values = parts["values"] * parts["values"].dtype.type(self.gain)
            store(as_reals(reference, self.id).reshape(out.shape) + values, out)
