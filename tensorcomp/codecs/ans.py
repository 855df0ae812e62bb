"""Tabled asymmetric numeral systems (tANS) in contexts."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.alphabet import (
    affordable_contexts,
    contexts_of,
    count_symbols,
    pack_symbols,
    symbols_of,
    unpack_symbols,
)
from tensorcomp.codecs.base import Pieces, Serializer
from tensorcomp.codecs.contexts import (
    SUMS,
    ContextModel,
    learn_columns,
    learn_model,
    pack_model,
    unpack_model,
)
from tensorcomp.codecs.frequencies import Frequencies, cheapest_frequencies
from tensorcomp.codecs.huffman import _split_side, _stream_starts
from tensorcomp.codecs.sections import pack_sections, unpack_sections
from tensorcomp.errors import CodecError

_HEAD = struct.Struct("<12Q")
_STREAMS = 4
_PADDING = 8  # a decoder loads whole words
_NO_ESCAPE = 1 << 16  # what the header holds where a symbol would stand


@dataclass(frozen=True)
class Ans(Serializer):
    """Code integers at their entropy by tANS with tables of 2**states states, four streams at once.

    Arrays of 1- and 2-byte elements are coded as such, others as their bytes. With `contexts` above
    1, rows and columns of a matrix are classed by scale and each class has frequencies of its own;
    as many contexts are used, a power of two, as pay for their tables. Symbols that are too rare
    for a table are replaced by one escape symbol, and their values stored apart.

    Layout: length of the side information (uint64), side information, four bit streams, each ending
    with a whole byte, 8 zero bytes. The side information is a zstd block of six sections: contexts,
    escape symbol (65536 for none), number of escaped elements, bits of a symbol, the four streams'
    bits and first states (12 × uint64); the coded symbols as a bit map; their frequencies, Rice
    codes of LOCO-I residuals, symbol by symbol and in each context by context; the escaped values;
    the context of each sum of levels; the rows' levels. What chunks share: the columns' levels.

    Lossless. Cost: O(n); about 2 ns an element to encode, 1.5 ns to decode. Rate: entropy + 0.002
    to 0.005 bit with 2**11 states, a third of that with 2**12. Not where speed counts most:
    `huffman` decodes faster, for 0.02 to 0.06 bit more.

    References
    ----------
    Duda 2009, "Asymmetric numeral systems"; Duda 2013, "Asymmetric numeral systems: entropy coding
    combining speed of Huffman coding with compression rate of arithmetic coding"; spread of the
    states: Collet 2013, "Finite State Entropy".
    """

    id: ClassVar[str] = "ans"
    contexts: int = 1
    states: int = 11

    def __post_init__(self) -> None:
        if self.contexts not in (1, 2, 4, 8, 16, 32):
            raise ValueError(f"contexts is a power of two from 1 to 32; got {self.contexts!r}")
        if not (isinstance(self.states, int) and 9 <= self.states <= 12):
            raise ValueError(f"states is a number of bits from 9 to 12; got {self.states!r}")

    def fit(self, array: np.ndarray) -> bytes:
        """Learn the columns' levels."""
        return learn_columns(array) if self.contexts > 1 and array.itemsize <= 2 else b""

    def encode(self, array: np.ndarray, shared: bytes = b"") -> Pieces:
        """Return the coded bytes."""
        from tensorcomp.kernels import ans as kernel

        if array.size == 0:
            return []
        symbols = symbols_of(array)
        wanted = affordable_contexts(symbols, self.contexts) if array.itemsize <= 2 else 1
        model = learn_model(array, wanted, shared)
        contexts = contexts_of(model, symbols.size)
        counted = count_symbols(symbols, contexts, wanted if model else 1)
        rows = model.row_levels.size if model is not None else 0
        chosen = cheapest_frequencies(counted, self.states, rows)
        number = chosen.table.shape[0]
        # The counts may have been joined; `contexts` stays as it is, and tables are repeated.
        step = counted.counts.shape[0] // number
        if model is not None:
            joined = ContextModel(model.row_levels, model.column_levels, model.context_of // step)
            model = joined if number > 1 else None
        escaped = _gather_escaped(symbols, contexts, counted.shift, chosen, step)
        entries = np.zeros((number, 1 << counted.shift), np.uint64)
        successors = np.empty((number + 1) << self.states, np.uint16)
        kernel.fill_encoder(
            chosen.table,
            self.states,
            chosen.symbols,
            counted.shift,
            entries.reshape(-1),
            successors,
        )
        if chosen.escape is not None:
            entries = np.where(chosen.escaped, entries[:, chosen.escape, None], entries)
        entries = np.repeat(entries, step, axis=0).reshape(-1)
        room = (symbols.size // _STREAMS + _STREAMS) * self.states // 8 + _PADDING + 1
        out = np.empty(_STREAMS * room, np.uint8)
        stops = np.arange(1, _STREAMS + 1) * room
        bits, first = np.empty((2, _STREAMS), np.int64)
        kernel.encode(
            symbols,
            contexts,
            counted.shift,
            entries,
            successors,
            self.states,
            out,
            stops,
            bits,
            first,
        )
        escape = _NO_ESCAPE if chosen.escape is None else chosen.escape
        side = pack_sections(
            [
                _HEAD.pack(number, escape, chosen.escapes, counted.shift, *bits, *first),
                pack_symbols(chosen.symbols),
                chosen.packed.tobytes(),
                escaped,
                *pack_model(model),
            ]
        )
        streams = [out[s - (b + 7) // 8 : s] for s, b in zip(stops, bits, strict=True)]
        return [struct.pack("<Q", len(side)), side, *streams, bytes(_PADDING)]

    def decode(self, data: np.ndarray, out: np.ndarray, shared: bytes = b"") -> None:
        """Fill `out`."""
        from tensorcomp.kernels import ans as kernel

        if out.size == 0:
            return
        symbols = symbols_of(out)
        side, stream = _split_side(data)
        # No side information that was written is larger than the array in wide integers.
        most = _HEAD.size + (1 << 13) + SUMS + 8 * self.contexts * symbols.size
        head, present, packed, values, *packed_model = unpack_sections(side, 6, most)
        if len(head) != _HEAD.size:
            raise CodecError("ans: its header is cut short")
        number, escape, escapes, width, *rest = _HEAD.unpack(head)
        bits, states = rest[:_STREAMS], np.array(rest[_STREAMS:], np.uint64)
        alphabet = unpack_symbols(present, symbols.itemsize)
        if not 1 <= number <= self.contexts:
            raise CodecError(f"ans: {number} contexts, at most {self.contexts} were asked for")
        if states.max() >= 1 << self.states:
            raise CodecError(f"ans: state {states.max()} of {1 << self.states}")
        frequencies = _unpack_frequencies(packed, number, alphabet.size, self.states)
        model = unpack_model(packed_model, number, out, shared)
        starts = 8 * _stream_starts(bits, stream.size)
        stops = starts + [(b + 7) // 8 * 8 for b in bits]
        table = np.empty(number << self.states, np.uint32)
        kernel.fill_decoder(frequencies, self.states, alphabet, table)
        contexts = contexts_of(model, symbols.size)
        ends = np.empty(_STREAMS, np.int64)
        kernel.decode(stream, stops - bits, table, self.states, contexts, symbols, ends, states)
        if (ends != stops).any() or states.any():
            raise CodecError("ans: a stream does not end where it should")
        if escape != _NO_ESCAPE:
            _restore_escaped(symbols, escape, escapes, values, width)


def _gather_escaped(
    symbols: np.ndarray, contexts: np.ndarray, shift: int, chosen: Frequencies, step: int
) -> bytes:
    """Return the values of the escaped elements, `shift` bits each, in the elements' order."""
    from tensorcomp.kernels import frequencies as kernel

    if not chosen.escapes:
        return b""
    values = np.empty(chosen.escapes + 1, np.uint16)
    escaped = np.repeat(chosen.escaped, step, axis=0).reshape(-1)
    kernel.gather_escaped(symbols, contexts, shift, escaped, values)
    packed = np.zeros((chosen.escapes * shift + 7) // 8 + 8, np.uint8)
    kernel.pack_values(values[:-1], shift, packed)
    return packed[:-8].tobytes()


def _restore_escaped(
    symbols: np.ndarray, escape: int, escapes: int, packed: bytes, width: int
) -> None:
    """Put the escaped values, in their order, where the escape symbol stands."""
    from tensorcomp.kernels import frequencies as kernel

    if escape >> (8 * symbols.itemsize):
        raise CodecError(
            f"ans: the escape symbol {escape} has more than {8 * symbols.itemsize} bits"
        )
    places = np.flatnonzero(symbols == escape)
    if places.size != escapes:
        raise CodecError(f"ans: {places.size} escape symbols for {escapes} values")
    if not width <= 8 * symbols.itemsize or len(packed) != (escapes * width + 7) // 8:
        raise CodecError(f"ans: {len(packed)} bytes for {escapes} values of {width} bits")
    values = np.empty(escapes, symbols.dtype)
    kernel.unpack_values(np.frombuffer(packed + bytes(8), np.uint8), width, values)
    symbols[places] = values


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
