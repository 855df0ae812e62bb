"""Tabled asymmetric numeral systems (tANS) in contexts."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.alphabet import (
    Alphabet,
    count_indices,
    indices_of,
    pack_symbols,
    symbol_bits,
    symbols_of,
    unpack_symbols,
)
from tensorcomp.codecs.base import ArraySpec, Pieces, Serializer, spec_of
from tensorcomp.codecs.bypass import join_low, low_bytes, split_low
from tensorcomp.codecs.contexts import (
    SUMS,
    learn_columns,
    learn_model,
    pack_model,
    shares_columns,
    unpack_model,
)
from tensorcomp.codecs.escapes import NO_ESCAPE, pack_escaped, restore_escaped, unpack_escaped
from tensorcomp.codecs.frequencies import Frequencies, cheapest_frequencies
from tensorcomp.codecs.machines import MACHINES
from tensorcomp.codecs.sections import pack_sections, unpack_sections
from tensorcomp.codecs.streams import PADDING, compact, split_side, stream_starts
from tensorcomp.errors import CodecError

_HEAD = struct.Struct("<12Q")
_STREAMS = 4


@dataclass(frozen=True)
class Ans(Serializer):
    """Code integers at their entropy by tANS with tables of 2**states states, four streams at once.

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
    and context by context, as Rice codes of LOCO-I residuals; the escaped values, so many bits
    each; the context of each sum of levels; the rows' levels. What chunks share: the columns'
    levels.

    With `trellis`, elements of 1 and 2 bytes have contexts of their own for each of two quantizers:
    the first half of the contexts is that of quantizer 0. Parities of the elements tell which is
    meant, by the machine of so many states (see `codecs.machines`); a single context is shared.

    With `bypass`, low bits of signed integers whose mean magnitude is 8 or more are not coded but
    stored as bit planes (see `kernels.bitpack`) before the streams; their number, times 256, is
    added to the header's bits of a symbol. All else is then that of the integers shifted right by
    so many bits, and quantizers are not told apart.

    Lossless. Cost: O(n); with contexts 2.5 to 4 ns an element to encode and 1.5 ns to decode. Rate:
    entropy + 0.002 to 0.005 bit with 2**11 states, half of that with 2**12. Not for fewer than some
    hundred elements, whose tables cost more than they save, nor for what is uniform (`bitpack`).

    References
    ----------
    Duda 2009, "Asymmetric numeral systems"; Duda 2013, "Asymmetric numeral systems: entropy coding
    combining speed of Huffman coding with compression rate of arithmetic coding"; spread of the
    states: Collet 2013, "Finite State Entropy"; tables: Weinberger, Seroussi & Sapiro 2000,
    "The LOCO-I lossless image compression algorithm".
    """

    id: ClassVar[str] = "ans"
    contexts: int = 1
    states: int = 11
    trellis: int = 0
    bypass: bool = False

    def __post_init__(self) -> None:
        if type(self.contexts) is not int or self.contexts not in (1, 2, 4, 8, 16, 32):
            raise ValueError(f"contexts is a power of two from 1 to 32; got {self.contexts!r}")
        if not (type(self.states) is int and 9 <= self.states <= 12):
            raise ValueError(f"states is a number of bits from 9 to 12; got {self.states!r}")
        if type(self.trellis) is not int or self.trellis not in (0, *MACHINES):
            raise ValueError(
                f"trellis is 0 or one of {', '.join(map(str, MACHINES))}; got {self.trellis!r}"
            )
        if type(self.bypass) is not bool:
            raise ValueError(f"bypass is true or false; got {self.bypass!r}")

    def shares(self, spec: ArraySpec) -> bool:
        """Return whether rows are so long that chunks share the columns' levels."""
        return self.contexts > 1 and spec.dtype.itemsize <= 2 and shares_columns(spec)

    def fit(self, array: np.ndarray) -> bytes:
        """Learn the columns' levels."""
        return learn_columns(array) if self.shares(spec_of(array)) else b""

    def encode(self, array: np.ndarray, shared: bytes = b"") -> Pieces:
        """Return the coded bytes."""
        if array.size == 0:
            return []
        low_bits, packed_low = 0, np.empty(0, np.uint8)
        if self.bypass and _is_folded(array):
            low_bits, array, packed_low = split_low(array)
        symbols = _fold(array)
        bits = symbol_bits(symbols)
        most = 1 << (16 - max(bits, self.states))
        quantizers = 2 if self._is_apart(array.dtype, low_bits) and most > 1 else 1
        wanted = min(self.contexts, most // quantizers)
        model = learn_model(array, wanted if array.itemsize <= 2 else 1, shared)
        indices = indices_of(symbols, model, bits)
        contexts = wanted if model else 1
        if quantizers > 1:
            indices = self._apart(symbols, indices, _is_folded(array), contexts << bits)
        counted = count_indices(indices, bits, quantizers * contexts)
        rows = model.row_levels.size if model else 0
        chosen = cheapest_frequencies(counted, self.states, rows, quantizers)
        number = len(chosen.table)
        step = len(counted.counts) // number
        streams, used, first = self._encode_streams(indices, counted, chosen)
        escape = NO_ESCAPE if chosen.escape is None else chosen.escape
        head = number, escape, chosen.escapes, bits | low_bits << 8, *used, *first
        side = pack_sections(
            [
                _HEAD.pack(*head),
                pack_symbols(chosen.symbols),
                chosen.packed.tobytes(),
                pack_escaped(symbols, indices, counted, chosen),
                *pack_model(model.joined(step) if model and number > quantizers else None),
            ]
        )
        return [struct.pack("<Q", len(side)), side, packed_low, streams, bytes(PADDING)]

    def _is_apart(self, dtype: np.dtype, low_bits: int) -> bool:
        """Return whether quantizers have contexts of their own, if there are several contexts.

        Where low bits are stored apart, distributions are so flat that they would look alike.
        """
        return self.trellis > 0 and dtype.itemsize <= 2 and low_bits == 0

    def _encode_streams(
        self, indices: np.ndarray, counted: Alphabet, chosen: Frequencies
    ) -> tuple[np.ndarray, list[int], list[int]]:
        """Return the four streams, the bits of each and the first state of each."""
        from tensorcomp.kernels import ans as kernel

        entries, successors = _encoder_tables(counted, chosen, self.states)
        step = len(counted.counts) // len(chosen.table)
        room = (indices.size // _STREAMS + 1) * self.states // 8 + PADDING + 1
        out = np.empty(_STREAMS * room, np.uint8)
        stops = np.arange(1, _STREAMS + 1) * room
        used, first = np.empty((2, _STREAMS), np.int64)
        table = entries.repeat(step, 0).reshape(-1)
        kernel.encode(indices, table, successors, self.states, out, stops, used, first)
        lengths = (used + 7) // 8
        return compact(out, stops - lengths, lengths), used.tolist(), first.tolist()

    def _apart(
        self, symbols: np.ndarray, indices: np.ndarray, folded: bool, offset: int
    ) -> np.ndarray:
        """Return the indices, those of quantizer 1 moved up by `offset`."""
        from tensorcomp.kernels import trellis as kernel

        machine = MACHINES[self.trellis]
        quantizers = np.empty(symbols.size, np.uint8)
        fold = 1 if folded else 16
        kernel.fill_quantizers(symbols, fold, machine.feedback, machine.forward, quantizers)
        moved = np.empty(symbols.size, np.uint16)
        kernel.add_offsets(indices, quantizers, offset, moved)
        return moved

    def decode(self, data: np.ndarray, out: np.ndarray, shared: bytes = b"") -> None:
        """Fill `out`."""
        from tensorcomp.kernels import ans as kernel
        from tensorcomp.kernels import trellis_ans as trellis_kernel

        if out.size == 0:
            return
        symbols = symbols_of(out)
        side, stream = split_side(data)
        # No side information that was written is larger than the array in wide integers.
        most = _HEAD.size + (1 << 13) + SUMS + 8 * self.contexts * symbols.size
        head, present, packed, values, *packed_model = unpack_sections(side, 6, most)
        if len(head) != _HEAD.size:
            raise CodecError("ans: its header is cut short")
        number, escape, escapes, width, *rest = _HEAD.unpack(head)
        low_bits, width = width >> 8, width & 0xFF
        if low_bits and not (self.bypass and _is_folded(out)):
            raise CodecError(f"ans: {low_bits} low bits stored apart")
        low, stream = np.split(stream, [low_bytes(low_bits, out.size, stream.size)])
        bits, states = rest[:_STREAMS], np.array(rest[_STREAMS:], np.uint64)
        alphabet = unpack_symbols(present, symbols.itemsize)
        if not 1 <= number <= 1 << (16 - self.states):
            raise CodecError(f"ans: {number} contexts of 2**{self.states} states")
        if states.max() >= 1 << self.states:
            raise CodecError(f"ans: state {states.max()} of {1 << self.states}")
        frequencies = _unpack_frequencies(packed, number, alphabet.size, self.states)
        quantizers = 2 if self._is_apart(out.dtype, low_bits) and number > 1 else 1
        if number % quantizers:
            raise CodecError(f"ans: {number} contexts for two quantizers")
        model = unpack_model(packed_model, number // quantizers, out, shared)
        starts = 8 * stream_starts(bits, stream.size)
        stops = starts + [(b + 7) // 8 * 8 for b in bits]
        table = np.empty(number << self.states, np.uint32)
        kernel.fill_decoder(frequencies, self.states, alphabet, table)
        bases = None if model is None else model.expand(self.states).reshape(-1)
        ends = np.empty(_STREAMS, np.int64)
        escaped = unpack_escaped(symbols, escape, escapes, values, width)
        if quantizers > 1:
            offset = (number // 2) << self.states
            fold = 1 if _is_folded(out) else 16
            machine = MACHINES[self.trellis]
            found = trellis_kernel.decode(
                stream,
                stops - bits,
                table,
                bases,
                offset,
                fold,
                machine.feedback,
                machine.forward,
                escape,
                escaped,
                symbols,
                ends,
                states,
            )
            if found != escaped.size:
                raise CodecError(f"ans: {found} escape symbols for {escaped.size} values")
        else:
            kernel.decode(stream, stops - bits, table, bases, symbols, ends, states)
            if escape != NO_ESCAPE:
                restore_escaped(symbols, escape, escaped)
        if (ends != stops).any() or states.any():
            raise CodecError("ans: a stream does not end where it should")
        if _is_folded(out):
            symbols[:] = (symbols >> 1) ^ -(symbols & 1)
            if low_bits:
                join_low(out, low_bits, low)


def _is_folded(array: np.ndarray) -> bool:
    return array.dtype.kind == "i" and array.itemsize <= 2


def _fold(array: np.ndarray) -> np.ndarray:
    """Return the symbols of an array: of signed integers, small ones for small magnitudes."""
    if _is_folded(array):
        array = (array << 1) ^ (array >> (8 * array.itemsize - 1))
    return symbols_of(array)


def _encoder_tables(
    counted: Alphabet, chosen: Frequencies, states: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the encoder's entries, (contexts, 2**bits of a symbol), and successors."""
    from tensorcomp.kernels import ans as kernel

    number = len(chosen.table)
    entries = np.zeros((number, 1 << counted.shift), np.uint64)
    successors = np.empty((number + 1) << states, np.uint16)
    kernel.fill_encoder(
        chosen.table, states, chosen.symbols, counted.shift, entries.reshape(-1), successors
    )
    if chosen.rare is not None:
        contexts, rare = np.nonzero(chosen.rare)
        entries[contexts, counted.symbols[rare]] = entries[contexts, chosen.escape]
    return entries, successors


def _unpack_frequencies(packed: bytes, number: int, size: int, states: int) -> np.ndarray:
    from tensorcomp.kernels import frequencies as kernel

    if number * size > 8 * len(packed):  # checked before so many are allocated
        raise CodecError("ans: the table of frequencies is cut short")
    table = np.empty((number, size), np.int64)
    read = kernel.unpack(np.frombuffer(packed + bytes(8), np.uint8), 1 << states, table)
    sums = table.sum(axis=1)
    if (read + 7) // 8 != len(packed) or not ((sums == 0) | (sums == 1 << states)).all():
        raise CodecError("ans: the frequencies do not fit their table")
    return table
