"""Arrays of few distinct elements, as a table and indices into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.base import ArraySpec, Transform
from tensorcomp.codecs.bit_views import as_words
from tensorcomp.errors import CodecError, NotRepresentable
from tensorcomp.kernels import native

_MAX_PATTERNS = 1 << 16


@dataclass(frozen=True)
class Palette(Transform):
    """Store each distinct bit pattern once, and code its rank per element.

    There may be 65,536 patterns.

    Parts: ``table``, one-dimensional, of the array's dtype, ascending as unsigned integers of the
    patterns' bits; ``codes``, uint16, of the array's shape.

    Lossless. Cost: O(n + k log k) for k patterns; 1 to 2 ns an element to encode, 0.5 ns to decode;
    arrays of more patterns are refused after the first 65,537. For codebooks, quantized weights and
    small integers. Not for `scale × integer` with a scale for each row (`grid`), nor for elements
    of 16 bytes.

    References
    ----------
    Codebooks of shared weights: Han, Mao & Dally 2016, "Deep Compression".
    """

    id: ClassVar[str] = "palette"
    off_wire: ClassVar[str] = "it is for arrays of few distinct values, which gradients lack"
    default_parts: ClassVar[Mapping[str, str]] = {"table": "raw", "codes": "ans"}

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the specs of the table and of the codes.

        The data decide the table's length.
        """
        return {
            "table": ArraySpec((-1,), spec.dtype),
            "codes": ArraySpec(spec.shape, np.dtype("<u2")),
        }

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return table and codes."""
        words = as_words(array).reshape(-1)
        codes = np.empty(array.shape, np.dtype("<u2"))
        if words.itemsize <= 2:
            present = np.zeros(1 << 8 * words.itemsize, np.uint8)
            native.palette_mark(words, present)
            table = np.flatnonzero(present).astype(words.dtype)
            ranks: np.ndarray = (np.cumsum(present) - present).astype(np.uint16)
            native.codebook_look_up(words, 0, ranks, codes.reshape(-1))
        else:
            found = np.empty(_MAX_PATTERNS, words.dtype)
            count = native.palette_number(words, found, codes.reshape(-1))
            if count < 0:
                raise NotRepresentable(f"palette: more than {_MAX_PATTERNS} distinct elements")
            order = np.argsort(found[:count], kind="stable")
            table = found[order]
            ranks = np.empty(max(count, 1), np.uint16)
            ranks[order] = np.arange(count)
            native.codebook_look_up(codes.reshape(-1), 0, ranks, codes.reshape(-1))
        return {"table": table.view(array.dtype), "codes": codes}

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Look each code up."""
        table, codes = as_words(parts["table"]), parts["codes"].reshape(-1)
        if codes.size == 0:
            return
        if int(codes.max()) >= table.size:
            raise CodecError(f"palette: expected codes below {table.size}, got {codes.max()}")
        native.codebook_look_up(codes, 0, table, as_words(out).reshape(-1))
