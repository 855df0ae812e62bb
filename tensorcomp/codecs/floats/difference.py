"""Arrays coded given the same elements of a base."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import Pieces, Serializer
from tensorcomp.codecs.bit_views import as_long_rows, as_words, readable
from tensorcomp.codecs.entropy.ans import log2_table
from tensorcomp.codecs.floats.fields import WRONG, cut_of
from tensorcomp.dtypes import holds_floats
from tensorcomp.errors import CodecError, NotRepresentable
from tensorcomp.kernels import native

_MAX_ITEMSIZE = 4
_LEVELS = {"none": 0, "rows": 1, "both": 2}
_MIN_HALVED = 1 << 12  # elements of a vector from which two lanes pay
_ROOM = 1 << 14  # bytes of tables, but for levels


@dataclass(frozen=True)
class Difference(Serializer):
    """Code elements given a reference, as differences in the order of floats.

    Bits of floats are integers in the order of the floats; what is coded is how many floats lie
    between an element and that of the reference. How many are likely follows from the exponent of
    the reference, whose unit they are, and from levels of rows and columns: how far their elements
    moved. Their sum is an element's context. Where less than an eighth of the elements differ, an
    arithmetic coder passes over the others at the cost of a multiplication each; else magnitudes
    are coded by tANS (see `Ans`), a table a context, and signs and low bits stored as they are.

    Layout: a byte for the way; nothing more where all elements equal the reference's, else the
    bytes of `kernels/difference.c`.

    Lossless: integers are subtracted. Cost: O(n); 1 to 2 ns an element where few differ, else about
    6 ns to encode and 3 to decode. Not for 64-bit elements, unless they all are those of the
    reference, nor where the reference is no nearer than any other array.

    Parameters
    ----------
    levels : {"none", "rows", "both"}
        Which levels are stored. They cost some bits for each row and column.

    Examples
    --------
    >>> from tensorcomp.codecs import decode, encode, parse_tree
    >>> from tensorcomp.codecs.base import spec_of
    >>> tree, base = parse_tree("difference"), np.ones((64, 64), np.float32)
    >>> payload = b"".join(encode(tree, base, reference=base))
    >>> len(payload), decode(tree, payload, spec_of(base), reference=base).sum()
    (2, np.float32(4096.0))

    References
    ----------
    Differences in float order: Ning et al. 2024, "FM-Delta"; few changed elements: Miahi &
    Belilovsky 2026, "Understanding and Exploiting Weight Update Sparsity" (PULSE).
    """

    id: ClassVar[str] = "difference"
    uses_reference: ClassVar[bool] = True
    long_chunks: ClassVar[bool] = True
    levels: str = argument("both", choices=_LEVELS)

    def fit(self, array: np.ndarray, *, reference: np.ndarray | None = None) -> bytes:
        """Return nothing: chunks share nothing."""
        return b""

    def encode(
        self, array: np.ndarray, shared: bytes = b"", *, reference: np.ndarray | None = None
    ) -> Pieces:
        """Return the coded bytes."""
        if reference is None:
            raise NotRepresentable("difference: no reference is given")
        _check_alike(reference, array)
        words, kind = _rows(array), _kind(array.dtype)
        states = _states(words.size)
        out = np.empty(words.nbytes + 2 * sum(words.shape) + _ROOM, np.uint8)
        levels = _LEVELS[self.levels] if kind[1] else 0
        size = native.difference_encode(
            _rows(readable(reference)), words, *kind, levels, states, log2_table(states), out
        )
        if not size:
            raise NotRepresentable("difference: nothing is saved")
        return [out[:size]]

    def decode(
        self,
        data: np.ndarray,
        out: np.ndarray,
        shared: bytes = b"",
        *,
        reference: np.ndarray | None = None,
    ) -> None:
        """Fill `out`."""
        if reference is None:
            raise CodecError("difference: expected a reference, got none; name the base")
        _check_alike(reference, out)
        if not data.size:
            raise CodecError("difference: the coded bytes are cut short")
        kind = _kind(out.dtype)
        levels = _LEVELS[self.levels] if kind[1] else 0
        wrong = native.difference_decode(
            data, _rows(readable(reference)), *kind, levels, _rows(out)
        )
        if wrong:
            raise CodecError(f"difference: {WRONG[wrong]}")


def _states(elements: int) -> int:
    """Return the bits of a table's states: more take longer to set up, and to store."""
    return 10 + (elements >= 1 << 16) + (elements >= 1 << 18)


def _check_alike(reference: np.ndarray, array: np.ndarray) -> None:
    wanted, got = (f"{a.dtype.newbyteorder('<')} {a.shape}" for a in (array, reference))
    if got != wanted:
        raise CodecError(f"difference: expected a reference of {wanted}, got one of {got}")


def _rows(array: np.ndarray) -> np.ndarray:
    rows = as_long_rows(as_words(array))
    if len(rows) == 1 and rows.size >= _MIN_HALVED and rows.size % 2 == 0:
        return rows.reshape(2, -1)
    return rows


def _kind(dtype: np.dtype) -> tuple[int, int]:
    """Return a float's bits of the mantissa, and all but the sign as a mask; 0 of others."""
    if not holds_floats(dtype) or dtype.itemsize > _MAX_ITEMSIZE:
        return 0, 0
    return cut_of(dtype, 0).low, (1 << (8 * dtype.itemsize - 1)) - 1
