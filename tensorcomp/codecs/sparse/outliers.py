"""Outliers: the few largest elements exactly, and the others without them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import ArraySpec, Transform
from tensorcomp.codecs.bit_views import as_words
from tensorcomp.codecs.rounding import check_float, is_real
from tensorcomp.codecs.sparse.selection import positions_above
from tensorcomp.errors import CodecError, NotRepresentable

_FEW = 64  # elements for each outlier that room is made for at first


@dataclass(frozen=True)
class Outliers(Transform):
    """Keep the elements of a magnitude of at least `limit` exactly.

    The others are coded apart. A quantizer with a fine step cannot reach an element of 10,000
    deviations, and a scale that can has nothing left for the others. In front of any quantizer this
    costs about 8 × (bytes of an element) + log2(n / k) + 2 bits for each of k outliers of n
    elements; with none, 42 bytes a chunk.

    Parts: ``positions``, int64, ascending: the indices of outliers in row-major order; ``exact``,
    these elements as they are, of the array's dtype; ``values``, the array with +0.0 in their
    places. The limit is rounded to the array's dtype. NaN and infinity are outliers.

    Lossless unless a part's subtree loses something; then the error of the values is that of the
    array. Cost: O(n), 0.2 ns an element each way, without the parts' coders.

    Parameters
    ----------
    limit : float
        In the unit of the elements; above 0.

    Notes
    -----
    Not for arrays of which more than one in a hundred elements is an outlier, nor where the
    quantizer behind it reaches all of them: its entropy coder spends fewer bits. For float types.

    References
    ----------
    Dettmers et al. 2024, "SpQR: A sparse-quantized representation for near-lossless LLM weight
    compression"; escapes: Lindstrom 2014, "Fixed-rate compressed floating-point arrays".
    """

    id: ClassVar[str] = "outliers"
    zeros: ClassVar[str] = "passed on"
    for_outliers: ClassVar[bool] = True
    off_wire: ClassVar[str] = "its limit is that of a stored tensor, and gradients change"
    default_parts: ClassVar[Mapping[str, str]] = {
        "positions": "gaps",
        "exact": "floats",
        "values": "floats",
    }
    limit: float = argument(above=0)

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the specs of as many outliers as the data decide, and of the array."""
        return {
            "positions": ArraySpec((-1,), np.dtype(np.int64)),
            "exact": ArraySpec((-1,), spec.dtype),
            "values": spec,
        }

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return where outliers are, these, and the array without them."""
        if not is_real(array.dtype):
            raise NotRepresentable(f"outliers: expected floats, got {array.dtype}")
        values = array.copy()
        flat = as_words(values).reshape(-1)
        with np.errstate(over="ignore"):
            least = as_words(np.array(self.limit).astype(array.dtype))
        positions = positions_above(flat, int(least), flat.size // _FEW)
        exact = flat[positions].view(array.dtype)
        flat[positions] = 0
        return {"positions": positions, "exact": exact, "values": values}

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Put the outliers in their places."""
        check_float(out.dtype, self.id)
        positions, exact = parts["positions"], parts["exact"]
        if positions.size != exact.size:
            raise CodecError(
                f"outliers: expected {positions.size} outliers, one a position, got {exact.size}"
            )
        inside = not positions.size or 0 <= positions[0] <= positions[-1] < out.size
        if not (inside and (positions[1:] > positions[:-1]).all()):
            raise CodecError(f"outliers: expected ascending positions below {out.size}")
        out[...] = parts["values"]
        as_words(out).reshape(-1)[positions] = as_words(exact)
