"""Bytes as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.base import Pieces, Serializer
from tensorcomp.errors import CodecError


@dataclass(frozen=True)
class Raw(Serializer):
    """Store an array's bytes, little-endian, in C order.

    Layout: the bytes. Lossless. Cost: O(n), a copy. Use anything else where the data allow it.
    """

    id: ClassVar[str] = "raw"
    for_any_array: ClassVar[bool] = True

    def encode(self, array: np.ndarray, shared: bytes = b"") -> Pieces:
        """Return the array's own bytes, not copied."""
        return [array.reshape(-1).view(np.uint8)]

    def decode(self, data: np.ndarray, out: np.ndarray, shared: bytes = b"") -> None:
        """Copy the bytes into `out`."""
        if data.size != out.nbytes:
            raise CodecError(f"raw: expected {out.nbytes} bytes, got {data.size}")
        out.reshape(-1).view(np.uint8)[:] = data
