"""The serializer `huffman`: canonical codes in contexts, eight streams.

Symbols are the words of elements of 1 or 2 bytes, of wider elements their bytes. Symbol i, in
row-major order, has the canonical code (see `bits`) of its context in stream i mod 8.

Layout: the side information behind its length (uint64); the streams, each from a whole byte on; 8
zero bytes. The side information is a block of five sections:

1. the number of contexts, the longest code, the bits of each stream: 10 uint64;
2. the symbols that occur, as a bit map, low bit first;
3. the length of the code of each symbol, a byte, context by context, from the second context on as
   the difference modulo 256 to the context before;
4. and 5. contexts (see `contexts`), empty if there is one.
"""

import struct

import numpy as np

from reference.bits import (
    canonical,
    check_end,
    next_symbol,
    split_streams,
    take_sized,
    unpack_sections,
)
from reference.codec import Leaf, codec
from reference.contexts import read_contexts


@codec("serializer", "huffman")
def huffman(leaf: Leaf, contexts: int = 1) -> np.ndarray:
    side, rest = take_sized(leaf.data)
    head, present, lengths, *model = unpack_sections(side)
    number, _, *sizes = struct.unpack("<10Q", head)
    alphabet = read_alphabet(present)
    table = np.frombuffer(lengths, np.uint8).reshape(number, -1)
    table = np.cumsum(table, axis=0, dtype=np.uint8)
    codes = [canonical(row) for row in table.tolist()]
    streams, padding = split_streams(rest, sizes)
    symbols = [
        alphabet[next_symbol(streams[i % 8], codes[context])]
        for i, context in enumerate(read_contexts(model, number, leaf))
    ]
    check_end(streams, padding, 8)
    return from_symbols(symbols, leaf)


def read_alphabet(present: bytes) -> list[int]:
    """Return the symbols of a bit map."""
    bits = np.unpackbits(np.frombuffer(present, np.uint8), bitorder="little")
    return np.flatnonzero(bits).tolist()


def from_symbols(symbols: list[int], leaf: Leaf) -> np.ndarray:
    """Return the words, or bytes, that are symbols."""
    return np.array(symbols, "<u2" if leaf.dtype.itemsize == 2 else "u1")
