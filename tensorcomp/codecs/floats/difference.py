"""Arrays coded given the same elements of a base."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import ArraySpec, Pieces, Serializer, spec_of
from tensorcomp.codecs.bit_views import as_long_rows, as_words, readable
from tensorcomp.codecs.entropy.ans import log2_table
from tensorcomp.codecs.floats.fields import WRONG, cut_of
from tensorcomp.codecs.floats.predictions import (
    decay_of,
    decayed,
    left_factor,
    right_factor,
    with_product,
)
from tensorcomp.codecs.tree import pack_sections, unpack_sections
from tensorcomp.dtypes import holds_floats
from tensorcomp.errors import CodecError, NotRepresentable
from tensorcomp.kernels import native

MAX_RANK = 256
_U32 = struct.Struct("<I")
_MAX_ITEMSIZE = 4
_MIN_HALVED = 1 << 12  # elements of a vector from which two lanes pay
_ROOM = 1 << 14  # bytes of tables, but for levels


@dataclass(frozen=True)
class Difference(Serializer):
    """Code elements given a reference, as differences in the order of floats.

    Bits of floats are integers in the order of the floats; what is coded is how many floats lie
    between an element and that of the reference. How many are likely follows from the exponent of
    the reference, whose unit they are, and from the level of the row: how far its elements moved.
    Both together are an element's context. Where less than an eighth of the elements differ, an
    arithmetic coder passes over the others at the cost of a multiplication each; else magnitudes
    are coded by tANS (see `Ans`), a table a context, and signs and low bits stored as they are.

    Layout: the bytes of `kernels/difference.c`, a single one where all elements equal the
    reference's. Before them, with `decay` or `rank`, behind their length (uint32), what the
    prediction needs, each behind its length (uint64): the factor (float32); the left factors, and
    the right ones unless chunks share them (a byte, then their payload by ``groupfloats``).

    Lossless: integers are subtracted. Cost: O(n); 1 to 2 ns an element where few differ, else about
    6 ns to encode and 3 to decode. Not for 64-bit elements, unless they all are those of the
    reference, nor where the reference is no nearer than any other array.

    Parameters
    ----------
    rank : int
        Of the factors whose product is added to the reference first, as a merged adapter adds it;
        0 for none. They are the best that linear algebra finds, and cost their own bytes.
    levels : bool
        Whether rows have levels. They cost some bits for each row.
    decay : bool
        Whether the reference is multiplied first by what weight decay made of most rows.

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
    rank: int = argument(0, least=0, most=MAX_RANK)
    levels: bool = True
    decay: bool = False

    def shares(self, spec: ArraySpec) -> bool:
        """Return whether chunks share the right factors."""
        return self.rank > 0 and len(spec.shape) > 1 and _is_predicted(spec.dtype)

    def fit(self, array: np.ndarray, *, reference: np.ndarray | None = None) -> bytes:
        """Return the right factors, if any."""
        if reference is None or array.size == 0 or not self.shares(spec_of(array)):
            return b""
        return right_factor(array, reference, self.rank)

    def encode(
        self, array: np.ndarray, shared: bytes = b"", *, reference: np.ndarray | None = None
    ) -> Pieces:
        """Return the coded bytes."""
        if reference is None:
            raise NotRepresentable("difference: no reference is given")
        _check_alike(reference, array)
        known, head = self._predicted(readable(reference), array, shared)
        words, kind = _rows(array), _kind(array.dtype)
        states = _states(words.size)
        out = np.empty(words.nbytes + 2 * len(words) + _ROOM, np.uint8)
        levels = self.levels and kind[1] > 0
        size = native.difference_encode(
            _rows(known), words, *kind, levels, states, log2_table(states), out
        )
        if not size:
            raise NotRepresentable("difference: nothing is saved")
        return [*head, out[:size]]

    def _predicted(
        self, reference: np.ndarray, array: np.ndarray, shared: bytes
    ) -> tuple[np.ndarray, Pieces]:
        """Return the prediction, and what the decoder needs to make it."""
        sections = []
        if not _is_predicted(array.dtype) or not (self.rank or self.decay):
            return reference, []
        if self.decay:
            sections.append(decay_of(array, reference))
            reference = decayed(reference, sections[0])
        if self.rank:
            right = shared or self.fit(array, reference=reference)
            left = left_factor(array, reference, right, self.rank)
            reference = with_product(reference, left, right, self.rank)
            sections += [left, b"" if shared else right]
        head = pack_sections(sections)
        return reference, [_U32.pack(len(head)), head]

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
        known, data = self._restored(readable(reference), data, shared)
        if not data.size:
            raise CodecError("difference: the coded bytes are cut short")
        kind = _kind(out.dtype)
        levels = self.levels and kind[1] > 0
        wrong = native.difference_decode(data, _rows(known), *kind, levels, _rows(out))
        if wrong:
            raise CodecError(f"difference: {WRONG[wrong]}")

    def _restored(
        self, reference: np.ndarray, data: np.ndarray, shared: bytes
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the prediction, and the bytes behind what it needs."""
        if not _is_predicted(reference.dtype) or not (self.rank or self.decay):
            return reference, data
        stop = _U32.size + int.from_bytes(data[: _U32.size].tobytes(), "little")
        if stop > data.size:
            raise CodecError("difference: the prediction is cut short")
        count = self.decay + 2 * (self.rank > 0)
        sections = unpack_sections(data[_U32.size : stop].tobytes(), count, "the prediction")
        if self.decay:
            reference = decayed(reference, sections[0])
        if self.rank:
            left, right = sections[-2:]
            reference = with_product(reference, left, shared or right, self.rank)
        return reference, data[stop:]


def _is_predicted(dtype: np.dtype) -> bool:
    """Return whether elements are floats whose products have the same bits everywhere."""
    return dtype.itemsize in (2, 4) and holds_floats(dtype)


def _states(elements: int) -> int:
    """Return the bits of a table's states: more take longer to set up, and to store."""
    return min(max(elements.bit_length() - 9, 8), 12)


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
