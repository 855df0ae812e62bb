"""Tabled asymmetric numeral systems (tANS) in contexts."""

from __future__ import annotations

import functools
import operator
import struct
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp._zstd_frames import compress
from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import Pieces
from tensorcomp.codecs.bit_views import as_rows, as_words
from tensorcomp.codecs.entropy import contexts
from tensorcomp.codecs.entropy.raw_low_bits import join_low, low_bytes, split_low
from tensorcomp.codecs.entropy.side_info import (
    LEVEL,
    PADDING,
    split_side,
    stream_starts,
    symbols_of,
    unpack_side_info,
    unpack_symbols,
)
from tensorcomp.errors import CodecError
from tensorcomp.kernels import native

_HEAD = struct.Struct("<12Q")
_STREAMS = 4
NO_ESCAPE = 1 << 16  # stands for an escape symbol where there is none
_FRACTION = 20  # costs are counted in units of 2**-20 bit
_MAX_SIDE = 1 << 18  # bytes of side information at most, but for levels and escaped values
TRELLIS_STATES = (4, 8, 16, 32)  # of the codes that name the quantizers of `trellis`


@dataclass(frozen=True)
class Ans(contexts.ContextCoder):
    """Code integers at their entropy by tANS, in four interleaved streams.

    The tables have 2**states states.

    Arrays of 1- and 2-byte elements are coded as such, signed ones folded (0, -1, 1, -2 … become
    0, 1, 2, 3 …), others as their bytes. With `contexts` above 1, rows and columns of a matrix are
    classed by scale and each class has frequencies of its own; as many contexts are used, a power
    of two and at most 2**(16 - states), as pay for their tables. Symbols that are too rare for a
    table are replaced by one escape symbol, and their values stored apart; alphabets may thus be of
    any size.

    Layout: length of the side information (uint64), side information, four bit streams, 8 zero
    bytes. Symbol i is in stream i mod 4, low bit first; a stream ends with a whole byte, and in
    state 0. The side information is a zstd block of six sections: contexts, escape symbol (65536
    for none), number of escaped elements, bits of a symbol, the four streams' bits and first states
    (12 × uint64); the symbols that have a code, as a bit map; their frequencies, symbol by symbol
    and context by context, as Rice codes of LOCO-I residuals; the escaped values, that many
    bits each; the context of each sum of levels; the rows' levels. What chunks share: the columns'
    levels.

    With `trellis`, elements of 1 and 2 bytes have contexts of their own for each of two quantizers:
    the first half of the contexts is that of quantizer 0. Parities of the elements say which is
    meant, by the code of `trellis` states (see `Trellis`); a single context is shared.

    With `bypass`, low bits of signed integers whose mean magnitude is 8 or more are not coded but
    stored as bit planes (see `bitpack`) before the streams; their number, times 256, is
    added to the header's bits of a symbol. All else is then that of the integers shifted right by
    that number, and quantizers are not distinguished.

    Lossless. Cost: O(n); with contexts 2 to 2.6 ns an element to encode and 1.1 to 1.4 ns to
    decode. Rate: entropy + 0.002 to 0.005 bit with 2**11 states, half of that with 2**12. Not for
    fewer than some hundred elements, whose tables cost more than they save, nor for what is uniform
    (`bitpack`).

    References
    ----------
    Duda 2009, "Asymmetric numeral systems"; Duda 2013, "Asymmetric numeral systems: entropy coding
    combining speed of Huffman coding with compression rate of arithmetic coding"; spread of the
    states: Collet 2013, "Finite State Entropy"; tables: Weinberger, Seroussi & Sapiro 2000,
    "The LOCO-I lossless image compression algorithm".
    """

    id: ClassVar[str] = "ans"
    states: int = argument(11, least=9, most=12)
    trellis: int = argument(0, choices=(0, *TRELLIS_STATES))
    bypass: bool = False

    def encode(self, array: np.ndarray, shared: bytes = b"") -> Pieces:
        """Return the coded bytes."""
        low_bits, packed_low = 0, np.empty(0, np.uint8)
        if self.bypass and _is_folded(array):
            low_bits, array, packed_low = split_low(array)
        # Elements wider than 16 bits are cut into their bytes, which have one context.
        small = array.itemsize <= 2
        words = as_rows(as_words(array)) if small else array.reshape(1, -1).view(np.uint8)
        matrix = contexts.integers(array) if small else words
        scaled = self.contexts > 1 and small and contexts.has_levels(matrix, shared)
        width, columns = contexts.unpack_columns(shared if scaled else b"", words.shape[1])
        room = (words.size // _STREAMS + 1) * self.states // 8 + PADDING + 1
        streams = np.empty(_STREAMS * room, np.uint8)
        side = np.empty(_MAX_SIDE + 2 * words.size + sum(words.shape), np.uint8)
        sizes = np.empty(2, np.int64)
        symbols = words, matrix, _is_folded(array), contexts.is_signed(array)
        trellis = self.trellis if self._is_apart(array.dtype, low_bits) else 0
        settings = self.contexts if scaled else 1, self.states, trellis
        logarithms = log2_table(self.states)
        native.ans_encode(
            *symbols, *settings, width, columns, logarithms, low_bits, side, streams, sizes
        )
        used, coded = sizes.tolist()
        packed = compress(side[:used].data, LEVEL)
        return [struct.pack("<Q", len(packed)), packed, packed_low, streams[:coded], bytes(PADDING)]

    def _is_apart(self, dtype: np.dtype, low_bits: int) -> bool:
        """Return whether quantizers have contexts of their own, if there are several contexts.

        Where low bits are stored apart, distributions are so flat that they would look alike.
        """
        return self.trellis > 0 and dtype.itemsize <= 2 and low_bits == 0

    def decode(self, data: np.ndarray, out: np.ndarray, shared: bytes = b"") -> None:
        """Fill `out`."""
        symbols = symbols_of(out)
        side, stream = split_side(data)
        # No side information that was written is larger than the array in wide integers.
        most = _HEAD.size + (1 << 13) + contexts.SUMS + 8 * self.contexts * symbols.size
        head, present, packed, values, *packed_model = unpack_side_info(side, 6, most)
        if len(head) != _HEAD.size:
            raise CodecError("ans: its header is cut short")
        number, escape, escapes, width, *rest = _HEAD.unpack(head)
        low_bits, width = width >> 8, width & 0xFF
        if low_bits and not (self.bypass and _is_folded(out)):
            raise CodecError(f"ans: expected no low bits stored apart, got {low_bits}")
        first = low_bytes(low_bits, out.size, stream.size)
        low, stream = stream[:first], stream[first:]
        bits, states = rest[:_STREAMS], rest[_STREAMS:]
        alphabet = unpack_symbols(present, symbols.itemsize)
        most = 1 << (16 - self.states)
        if not 1 <= number <= most:
            raise CodecError(f"ans: expected 1 to {most} contexts, got {number}")
        if max(states) >= 1 << self.states:
            raise CodecError(f"ans: expected states below {1 << self.states}, got {max(states)}")
        if number * alphabet.size > 8 * len(packed):  # checked before they are allocated
            raise CodecError("ans: the table of frequencies is cut short")
        quantizers = 2 if self._is_apart(out.dtype, low_bits) and number > 1 else 1
        if number % quantizers:
            raise CodecError(f"ans: expected an even number of contexts, got {number}")
        model = contexts.unpack_model(packed_model, number // quantizers, out, shared)
        row_levels, column_levels, context_of = model
        if context_of is not None:
            context_of = context_of.astype(np.uint16) << self.states
        starts = stream_starts(bits, stream.size)
        stops = [8 * (start + (b + 7) // 8) for start, b in zip(starts, bits, strict=True)]
        heads = np.array([*map(operator.sub, stops, bits), *states])
        folded = _is_folded(out)
        escaped = unpack_escaped(symbols, escape, escapes, values, width, folded)
        table = packed + bytes(PADDING), alphabet, number, self.states, folded
        levels = row_levels, column_levels, context_of, self.trellis if quantizers > 1 else 0
        found = native.ans_decode(stream, heads, *table, *levels, escape, escaped, symbols)
        if found < 0:
            raise CodecError("ans: the frequencies do not fit their table")
        if found != escaped.size:
            raise CodecError(f"ans: expected {escaped.size} escape symbols, got {found}")
        if heads.tolist() != [*stops, *[0] * _STREAMS]:
            raise CodecError("ans: a stream does not end where it should")
        if low_bits:
            join_low(out, low_bits, low)


def _is_folded(array: np.ndarray) -> bool:
    return array.dtype.kind == "i" and array.itemsize <= 2


def unpack_escaped(
    symbols: np.ndarray, escape: int, escapes: int, packed: bytes, width: int, folded: bool
) -> np.ndarray:
    """Return the escaped values of symbols, unfolded if they are folded.

    They have the symbols' dtype.
    """
    if escape == NO_ESCAPE:
        return np.empty(0, symbols.dtype)
    if escape >> (8 * symbols.itemsize):
        raise CodecError(
            f"ans: expected an escape symbol of {8 * symbols.itemsize} bits, got {escape}"
        )
    if escapes > symbols.size:
        raise CodecError(f"ans: expected at most {symbols.size} escaped values, got {escapes}")
    if not width <= 8 * symbols.itemsize or len(packed) != (escapes * width + 7) // 8:
        raise CodecError(
            f"ans: expected {escapes} escaped values of {width} bits, got {len(packed)} bytes"
        )
    values = np.empty(escapes, symbols.dtype)
    native.ans_unpack_escaped(packed + bytes(8), width, folded, values)
    return values


@functools.cache
def log2_table(states: int) -> np.ndarray:
    """Return log2 of 0 .. 2**states in units of 2**-20, int32; 0 of 0.

    It is computed by integer arithmetic.
    """
    numbers = np.arange(1, (1 << states) + 1, dtype=np.uint64)
    whole = np.frexp(numbers.astype(np.float64))[1].astype(np.uint64) - np.uint64(1)  # exact
    mantissas = numbers << (np.uint64(31) - whole)
    fraction = np.zeros_like(numbers)
    for _ in range(_FRACTION):  # square, and see whether it passes 2
        mantissas = (mantissas * mantissas) >> np.uint64(31)
        bit = mantissas >> np.uint64(32)
        mantissas >>= bit
        fraction = (fraction << np.uint64(1)) | bit
    table = ((whole << np.uint64(_FRACTION)) | fraction).astype(np.int32)
    table = np.concatenate([np.zeros(1, np.int32), table])
    table.flags.writeable = False
    return table
