"""Floats coded in one step, as ``fields(huffman, bitpack)`` codes them.

There are no arrays in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import ArraySpec, Pieces, Serializer, spec_of
from tensorcomp.codecs.bit_views import as_long_rows, as_words
from tensorcomp.codecs.entropy.contexts import learn_columns, shares_columns, unpack_columns
from tensorcomp.codecs.floats.fields import MIN_BYTES, WRONG, Fields, cut_of
from tensorcomp.codecs.strategy import Strategy
from tensorcomp.errors import CodecError, NotRepresentable
from tensorcomp.kernels import native

_MIN_CLASSED = 1 << 12  # elements from which rows may be classed by scale
_MIN_ELEMENTS = 1 << 13  # elements of a context


@dataclass(frozen=True)
class Floats(Serializer):
    """Code exponents by Huffman codes in contexts, all else as bit planes.

    A context is a class of rows and columns by scale.

    It stores what ``fields(mantissa_bits, exponent=huffman(contexts), mantissa=bitpack)`` stores,
    with less side information and in less time.

    Layout: side information and eight bit streams (see ``kernels/floats.c``), then planes (see
    ``kernels/bit_planes.h``), followed by zeros if they have less than 8 bytes, since the decoder
    loads whole words. What chunks of long rows share: the columns' levels.

    Lossless: bits are moved, never interpreted. Cost: O(n), about 1 ns an element each way. Not for
    integers, nor where few distinct values occur (`palette`, `grid`, `sparse`).

    Parameters
    ----------
    mantissa_bits : int
        Top bits of the mantissa, 0 to 4, that are coded with the exponent.
    contexts : int
        How many there may be, a power of two up to 32; 1 decodes fastest.

    References
    ----------
    Exponents coded apart: Hershcovitch et al. 2024, "ZipNN"; Zhang et al. 2025, "DFloat11".
    """

    id: ClassVar[str] = "floats"
    for_any_array: ClassVar[bool] = True
    strategies: ClassVar[tuple[Strategy, ...]] = (Strategy("Huffman alone", "floats(contexts=1)"),)
    mantissa_bits: int = argument(2, least=0, most=4)
    contexts: int = argument(8, choices=(1, 2, 4, 8, 16, 32))

    def shares(self, spec: ArraySpec) -> bool:
        """Return whether rows are so long that chunks share the columns' levels."""
        return self.contexts > 1 and shares_columns(spec)

    def fit(self, array: np.ndarray) -> bytes:
        """Learn the columns' levels."""
        if not self.shares(spec_of(array)):
            return b""
        return learn_columns(Fields(self.mantissa_bits).encode(array)["exponent"])

    def encode(self, array: np.ndarray, shared: bytes = b"") -> Pieces:
        """Return the coded bytes."""
        rows = as_long_rows(as_words(array))
        cut = cut_of(array.dtype, self.mantissa_bits)
        width, columns = unpack_columns(shared, rows.shape[1])
        contexts = self._affordable(array.size) if rows.shape[0] > 1 or shared else 1
        out = np.empty(array.nbytes + _side_limit(rows.shape, contexts), np.uint8)
        classed = array.size >= _MIN_CLASSED
        size = native.floats_encode(rows, cut.low, cut.mask, classed, contexts, width, columns, out)
        if not size:
            raise NotRepresentable("floats: no code makes these exponents smaller")
        return [out[:size]]

    def _affordable(self, elements: int) -> int:
        """Return how many contexts are worth trying: a power of two of enough elements each."""
        return min(self.contexts, 1 << max(elements // _MIN_ELEMENTS, 1).bit_length() - 1)

    def decode(self, data: np.ndarray, out: np.ndarray, shared: bytes = b"") -> None:
        """Fill `out`."""
        if data.size < MIN_BYTES:
            raise CodecError("floats: the coded bytes are cut short")
        rows = as_long_rows(as_words(out))
        _, columns = unpack_columns(shared, rows.shape[1])
        low = cut_of(out.dtype, self.mantissa_bits).low
        wrong = native.floats_decode(data, low, columns, rows)
        if wrong:
            raise CodecError(f"floats: {WRONG[wrong]}")


def _side_limit(shape: tuple[int, ...], contexts: int) -> int:
    """Return the most bytes that side information and padding of such rows can have."""
    rows, columns = shape
    lengths_of_codes = min(contexts * rows * columns, 1 << 14)  # contexts × symbols
    return 256 + 17 * rows + columns + 12 * lengths_of_codes
