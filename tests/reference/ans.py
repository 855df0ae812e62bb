"""The serializer `ans`: tabled asymmetric numeral systems in contexts, four streams.

Symbols are those of `huffman`, but signed integers of 1 and 2 bytes are folded: 0, -1, 1, -2 … are
0, 1, 2, 3 …. Symbol i, in row-major order, has the table of its context and is in stream i mod 4.

*Tables.* A context's frequencies add up to 2**states; a symbol of frequency f owns f of so many
states. Symbol after symbol takes its states, beginning with state 0, each 5/8 × 2**states + 3
further on, modulo 2**states. In ascending order a symbol's states have the numbers f, f + 1, …
2 f - 1. From a state, the symbol is the state's owner; of its number n, the next state is
n << b, less 2**states, and the number that the next b bits of the stream are, for the b that brings
n << b to 2**states … 2**(states + 1) - 1. Each stream has a first state, and ends in state 0.

*Escapes.* One symbol may stand for rare ones, which have no code: where it occurs, the next of the
escaped values takes its place.

*Quantizers.* With the field `trellis` there are machines of so many states (see `machines`), for
elements of 1 and 2 bytes, moved by the unfolded integers. If there are several contexts, the first
half is quantizer 0's and the second half quantizer 1's; there are half as many of row and column
scale then. If there is one, quantizers are not told apart.

*Bypass.* Low bits of signed integers of 1 and 2 bytes may be stored apart. All of the above then
holds for the integers shifted right by so many bits, and quantizers are not told apart.

Layout: the side information behind its length (uint64); the low bits that are stored apart, as
planes (see `bits`) of one (shift, width); the streams, each in whole bytes and ending with the
highest bit of the last one; 8 zero bytes. The side information is a block of six sections:

1. the number of contexts, the escape symbol or 65,536, the number of escaped values, the bits of a
   value + 256 × the low bits that are stored apart, the bits of each stream, the first state of
   each: 12 uint64;
2. the symbols that have a code, as a bit map, low bit first;
3. the table of their frequencies, a row for each context (see `rice`), 0 throughout for a context
   that does not occur;
4. the escaped values, in the elements' order, one behind the other;
5. and 6. contexts (see `contexts`), empty if there is one, or one for each quantizer.
"""

import struct

import numpy as np

from reference.bits import (
    Bits,
    check_end,
    next_number,
    split_streams,
    take_sized,
    unpack_planes,
    unpack_sections,
)
from reference.codec import Leaf, codec
from reference.contexts import read_contexts
from reference.huffman import from_symbols, read_alphabet
from reference.machines import Machines
from reference.rice import read_table


@codec("serializer", "ans")
def ans(
    leaf: Leaf, contexts: int = 1, states: int = 11, trellis: int = 0, bypass: bool = False
) -> np.ndarray:
    side, rest = take_sized(leaf.data)
    head, present, packed, escaped, *model = unpack_sections(side)
    number, escape, escapes, widths, *numbers = struct.unpack("<12Q", head)
    sizes, state = numbers[:4], numbers[4:]
    low_bits, width = divmod(widths, 256)
    alphabet = read_alphabet(present)
    frequencies = read_table(Bits(packed), number, len(alphabet))
    tables = [decoding_table(row, alphabet, states) for row in frequencies]
    reader = Bits(escaped)
    replaced = iter([reader.take(width) for _ in range(escapes)])

    small = leaf.dtype.itemsize <= 2
    folded = small and leaf.dtype.kind == "i"
    apart = small and trellis > 0 and low_bits == 0 and number > 1
    machines = Machines(trellis if apart else 0)
    by_scale = number // 2 if apart else number
    chosen = read_contexts(model, by_scale, leaf)
    low, used = unpack_planes(rest, [(0, low_bits)], 1, len(chosen))
    streams, padding = split_streams(rest[used:], sizes, at_ends=True)
    values = []
    for i, context in enumerate(chosen):
        table = tables[context + by_scale * machines.quantizer(i)]
        symbol, base, count = table[state[i % 4]]
        state[i % 4] = base + next_number(streams[i % 4], count)
        if symbol == escape:
            symbol = next(replaced)
        values.append(_unfolded(symbol) if folded else symbol)
        machines.move(i, values[-1])
    check_end(streams, padding, 8)
    if any(state):
        raise ValueError("a stream does not end in state 0")
    if folded:
        return (np.array(values) << low_bits | low.astype(np.int64)).astype(leaf.dtype)
    return from_symbols(values, leaf)


def _unfolded(symbol: int) -> int:
    return -(symbol + 1) // 2 if symbol & 1 else symbol // 2


def decoding_table(
    frequencies: list[int], alphabet: list[int], states: int
) -> list[tuple[int, int, int]]:
    """Return for each state its symbol, what is added to the next bits, and how many they are."""
    total = 1 << states
    if not any(frequencies):
        return []
    owners = [0] * total
    state = 0
    for place, frequency in enumerate(frequencies):
        for _ in range(frequency):
            owners[state] = place
            state = (state + (total >> 1) + (total >> 3) + 3) % total
    numbers = list(frequencies)
    table = []
    for place in owners:
        count = states + 1 - numbers[place].bit_length()
        table.append((alphabet[place], (numbers[place] << count) - total, count))
        numbers[place] += 1
    return table
