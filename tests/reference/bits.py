"""Bit streams, canonical codes, bit planes, and blocks of sections.

*Bit streams.* The first bit is the lowest of the first byte. A number of so many bits has its
lowest bit first; a canonical code has its highest bit first.

*Elias' gamma code* of a number from 1 on: a zero for each bit below its highest one, a one, then
these bits.

*Canonical codes* follow from their lengths: codes of one length are consecutive numbers in the
order of their symbols; the first code of a length is twice the number behind the last code that is
one bit shorter. Length 0 says that a symbol has no code.

*Bit planes.* A row of C words of `width` bits is stored as ``width // 8`` planes of whole bytes,
the lowest byte first, then of the bits that are left one plane of 4, one of 2 and one of 1 bit,
where ``width % 8`` has that bit. A plane of b bits has q = ceil(C b / 8) bytes; byte i holds the
bits of the words i, i + q, i + 2 q, … from its low bits up. All words are then shifted left by the
row's `shift`. The words of an array have either one (shift, width), and are cut into rows of 4,096
regardless of the array's own, or one for each row.

*Sections.* A zstd frame; in it byte strings, each behind its length (uint64).
"""

import struct
from collections.abc import Iterator, Sequence

import numpy as np
import zstandard

BLOCK = 4096  # words of a row of planes, where an array's own rows do not count


class Bits:
    """Numbers read one behind the other from a stream of bits."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def take(self, count: int) -> int:
        """Return the number that the next `count` bits are."""
        byte, shift = divmod(self.position, 8)
        self.position += count
        if self.position > 8 * len(self.data):
            raise ValueError("the stream of bits is cut short")
        word = int.from_bytes(self.data[byte : -(-self.position // 8)], "little")
        return (word >> shift) & ((1 << count) - 1)

    def gamma(self) -> int:
        """Return a number in Elias' gamma code."""
        zeros = 0
        while not self.take(1):
            zeros += 1
        return 1 << zeros | self.take(zeros)

    def symbol(self, codes: dict[int, int]) -> int:
        """Return the symbol of the next code (see `canonical`)."""
        code = 1
        while code not in codes:
            code = code << 1 | self.take(1)
        return codes[code]

    def align(self) -> int:
        """Move to the next whole byte, and return its place."""
        self.position = -(-self.position // 8) * 8
        return self.position // 8


def canonical(lengths: Sequence[int]) -> dict[int, int]:
    """Return which symbol each code stands for; codes have a one above their highest bit."""
    codes = {}
    code = 0
    for length in range(1, max(lengths, default=0) + 1):
        for symbol, own in enumerate(lengths):
            if own == length:
                codes[1 << length | code] = symbol
                code += 1
        code <<= 1
    return codes


def split_streams(
    data: bytes, sizes: Sequence[int], *, at_ends: bool = False
) -> tuple[list[Iterator[int]], bytes]:
    """Return iterators over the bits of streams, and the bytes behind them.

    Parameters
    ----------
    data : bytes
        That begin with the streams, each in whole bytes.
    sizes : sequence of int
        The bits of each.
    at_ends : bool
        Whether a stream's last bit, and not its first, is at the end of its bytes.
    """
    streams = []
    for size in sizes:
        whole = -(-size // 8)
        bits = np.unpackbits(np.frombuffer(data[:whole], np.uint8), bitorder="little").tolist()
        streams.append(iter(bits[len(bits) - size :] if at_ends else bits[:size]))
        data = data[whole:]
    return streams, data


def next_symbol(bits: Iterator[int], codes: dict[int, int]) -> int:
    """Return the symbol of the next code of a stream."""
    code = 1
    while code not in codes:
        code = code << 1 | next(bits)
    return codes[code]


def next_number(bits: Iterator[int], count: int) -> int:
    """Return the number that the next `count` bits of a stream are."""
    return sum(next(bits) << k for k in range(count))


def check_end(streams: Sequence[Iterator[int]], rest: bytes, zeros: int) -> None:
    """Require that no stream has a bit left, and that so many bytes of 0 are the rest."""
    if any(next(bits, None) is not None for bits in streams):
        raise ValueError("a stream does not end where it should")
    if rest != bytes(zeros):
        raise ValueError("the padding is wrong")


def unpack_planes(
    data: bytes, spans: Sequence[tuple[int, int]], rows: int, columns: int
) -> tuple[np.ndarray, int]:
    """Return rows × columns words, flat uint64, and the bytes that their planes take.

    Parameters
    ----------
    data : bytes
        That begin with the planes.
    spans : sequence of (int, int)
        The (shift, width) of each row, or one of all words together.
    rows, columns : int
    """
    size = rows * columns
    if len(spans) == 1:
        lengths = [min(BLOCK, size - start) for start in range(0, size, BLOCK)]
        spans = [spans[0]] * len(lengths)
    else:
        lengths = [columns] * rows
    words, at = [np.empty(0, np.uint64)], 0
    for (shift, width), length in zip(spans, lengths, strict=True):
        row, at = _unpack_row(data, at, shift, width, length)
        words.append(row)
    return np.concatenate(words), at


def _unpack_row(
    data: bytes, at: int, shift: int, width: int, columns: int
) -> tuple[np.ndarray, int]:
    row = np.zeros(columns, np.uint64)
    for bits in [8] * (width // 8) + [bits for bits in (4, 2, 1) if width & bits]:
        size = -(-columns * bits // 8)
        plane = np.frombuffer(data, np.uint8, size, at)
        lanes = [plane >> bits * k & (1 << bits) - 1 for k in range(8 // bits)]
        row |= np.concatenate(lanes)[:columns].astype(np.uint64) << np.uint64(shift)
        at += size
        shift += bits
    return row, at


def unpack_frame(data: bytes) -> bytes:
    """Return the content of a zstd frame."""
    return zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)


def unpack_sections(data: bytes) -> list[bytes]:
    """Return the sections of a block."""
    sections, rest = [], unpack_frame(data)
    while rest:
        section, rest = take_sized(rest)
        sections.append(section)
    return sections


def take_sized(data: bytes) -> tuple[bytes, bytes]:
    """Return the bytes that stand behind their length (uint64), and what follows them."""
    (length,) = struct.unpack_from("<Q", data)
    if length > len(data) - 8:
        raise ValueError("the bytes are cut short")
    return data[8 : 8 + length], data[8 + length :]
