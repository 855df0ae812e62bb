"""The serializers without an entropy coder, or with a small one, and the filter.

*raw*: the array's bytes in C order.

*constant*: the bytes of one element, which all have.

*bitpack*: the side information behind its length (uint64); planes (see `bits`). The side
information is a block of two sections: the smallest integer (uint64, 0 if the dtype is unsigned or
no integer), which is added to all words modulo the word; (shift, width), two bytes, once or for
each row.

*runlength*: a block of two sections. The runs' words, as differences modulo the word to the one
before, the first to 0: the lowest byte of all, then the next one of all, and so on. The runs'
lengths, each in bytes of seven bits, low ones first, all but the last with the top bit set.

*gaps*: of a mask, whether the false elements are coded and not the true ones (1 byte), and how many
(uint64); of ascending integers the first one (uint64, signed ones modulo 2**64). Then the number of
classes (1 byte), the length of the code of each in four bits, low half first, up to a whole byte;
then a bit stream. A gap is the number of elements between a coded one and that before it, or the
array's beginning; of integers, that between one and the one before, less 1, and the first gap is a
0. Each gap is the canonical code of its class, and then low bits. Classes 0 to 3 are the gaps 0 to
3; class 4 b + t, b > 0, has b - 1 low bits, and a one and the two bits t above them.

*zstd*: one frame.
"""

import struct

import numpy as np

from reference.bits import Bits, canonical, take_sized, unpack_frame, unpack_planes, unpack_sections
from reference.codec import Leaf, codec, matrix_shape, word_of


@codec("serializer", "raw")
def raw(leaf: Leaf) -> np.ndarray:
    return np.frombuffer(leaf.data, np.uint8)


@codec("serializer", "constant")
def constant(leaf: Leaf) -> np.ndarray:
    return np.frombuffer(leaf.data * leaf.size, np.uint8)


@codec("serializer", "bitpack")
def bitpack(leaf: Leaf) -> np.ndarray:
    side, planes = take_sized(leaf.data)
    least, spans = unpack_sections(side)
    pairs = list(struct.iter_unpack("BB", spans))
    words, used = unpack_planes(planes, pairs, *matrix_shape(leaf.shape))
    if used != len(planes):
        raise ValueError("the planes have another size")
    words += np.uint64(int.from_bytes(least, "little"))
    return words.astype(word_of(leaf.dtype))


@codec("serializer", "runlength")
def runlength(leaf: Leaf) -> np.ndarray:
    planes, coded = unpack_sections(leaf.data)
    word = word_of(leaf.dtype)
    steps = np.frombuffer(planes, np.uint8).reshape(word.itemsize, -1).T.copy()
    values = np.cumsum(steps.view(word), dtype=word)
    lengths = []
    length = shift = 0
    for byte in coded:
        length |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            lengths.append(length)
            length = shift = 0
    return np.repeat(values, lengths)


@codec("serializer", "gaps")
def gaps(leaf: Leaf) -> np.ndarray:
    if leaf.dtype == np.bool_:
        inverted, count = struct.unpack_from("<?Q", leaf.data)
        mask = np.full(leaf.size, inverted)
        mask[_read_positions(leaf.data[9:], count)] = not inverted
        return mask
    first = int.from_bytes(leaf.data[:8], "little")
    places = _read_positions(leaf.data[8:], leaf.size)
    return np.array([(first + place) % (1 << 64) for place in places], np.uint64).astype(leaf.dtype)


def _read_positions(data: bytes, count: int) -> list[int]:
    classes = data[0]
    begin = 1 + (classes + 1) // 2
    lengths = [half for byte in data[1:begin] for half in (byte & 15, byte >> 4)]
    codes = canonical(lengths[:classes])
    bits = Bits(data[begin:])
    positions = []
    following = 0
    for _ in range(count):
        kind = bits.symbol(codes)
        gap = kind
        if kind >= 4:
            low_bits = kind // 4 - 1
            gap = (4 | kind % 4) << low_bits | bits.take(low_bits)
        positions.append(following + gap)
        following += gap + 1
    if bits.align() != len(bits.data):
        raise ValueError("the stream does not end where it should")
    return positions


@codec("filter", "zstd")
def zstd(data: bytes, level: int = 3) -> bytes:
    return unpack_frame(data)
