"""The serializer `difference`: an array given a reference, as integers in the order of floats.

*Prediction.* Of floats of 2 and 4 bytes, with `decay` or `rank`, sections stand first, each behind
its length (uint64), all of them behind their length (uint32). With `decay`: a factor (float32), by
which the reference is multiplied in float32. With `rank`: the left factor, and the right one unless
chunks share it; a right factor is a byte and then, as the left factor is, a node's bytes (see
`tree`) of ``groupfloats(0, groups=1)``, float32, (rows, rank) and (rank, columns). Their product,
and what it makes of the reference, are sums in the order of their terms, from 0, in float32 of
floats of 2 bytes and in float64 of those of 4. Both predictions are rounded to the array's type;
where that gives no finite number the reference stays. If the right factor is empty there is none.

*Matrix.* The first axis × the others; a single row if rows have less than 16 elements, and, of
4,096 elements or more, if they are even, two halves of that row.

*Order.* The word of a float is an integer in the order of floats once the bits below the sign are
inverted where the sign is set, and then the sign. An element is the prediction plus a difference,
modulo 2**bits. Integers are their own words. The exponent of a prediction is that of its bits; of
integers it is 0.

*Coder.* A number of 56 bits, most significant byte first, zeros behind the last one; the range is
2**56 first. A bit has a probability p of being 0, in 2**-20: it is 0 if the number is below
p × (range >> 20), which becomes the range; else that is taken from both. Below 2**48 the range is
multiplied by 256, and the number gets another byte. *Plain* bits have p = 2**19. *Learned* bits
begin with that; after each, p moves by 2 / (2 n + 3) of what is missing to 2**20 or 0, towards 0, n
being the bits seen before, at most 255; it stays within 64 of both ends. A *tree* gives a number of
k bits, the highest first, each a learned bit of those before it.

The first byte tells what follows.

0. Nothing: the array is its prediction.

1. The bytes of the first coder (uint32), its bytes, those of the second one. The first has: the
   lowest sum (9 plain bits), the first and the last context (5 each), and for each context between
   them a rate: what is expected is 72 at first, then the rate before less 8; the error is folded
   (0, -1, 1 … are 0, 1, 2 …), less its two low bits in ones and a zero, at most 72 ones, then these
   bits. A rate r stands for the probability 2**(-r / 8) that a word differs. Rows are coded two at
   a time: one of the first half by the first coder, one of the other by the second, an element of
   each in turn. A row has a level, a tree of 4 bits, if there are levels; 8 else; at level 0 it is
   its prediction. The context of an element is level + 255 - exponent, less the lowest sum, from 0
   to 31. If a word differs (a bit of the context's probability), there follow: a plain bit, whether
   it is less; a learned bit of the context, whether it is by more than one; and then, less one, its
   length less 1 (a tree of 5 bits for every four contexts), its second bit (learned for these and
   the length), the others (plain).

2. With 16 × states: bytes of the side information (uint32); four streams as in `ans`, whole bytes
   each; the bits that are stored as they are; the side information, from a coder: a level for each
   row (a tree of 6 bits; 0 without levels); the lowest bin (10 plain bits); how many contexts, less
   one (5), and the bin behind each one's, less one (6); of 121 classes a learned bit each, whether
   it occurs, for either value of the one before; of the bits of the streams and those stored their
   length (6) and they; the first state of each stream; the frequencies, class by class, in each
   for each context: predicted as in `rice`, the value's length a tree of 4 bits for its class of
   activity, then what is behind its highest bit, plain. The bin of an element is half of
   level + 4 × (255 - exponent), less the lowest, from 0 to 63. A class is a magnitude's upper three
   bits + 4 × the bits below these. Stored are, for each element that differs, whether it is less,
   and those bits.
"""

import math
import struct

import numpy as np

from reference.ans import decoding_table
from reference.bits import Bits, next_number, split_streams, take_sized
from reference.codec import Leaf, codec, word_of
from reference.floats import MIN_ROW, cut
from reference.rice import predict

CERTAIN = 1 << 20


class Coder:
    """A number that tells bits."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.range, self.number = data, 0, 1 << 56, 0
        for _ in range(7):
            self._next()

    def _next(self) -> None:
        byte = self.data[self.at] if self.at < len(self.data) else 0
        self.number, self.at = self.number << 8 | byte, self.at + 1

    def bit(self, zero: int) -> int:
        bound = (self.range >> 20) * zero
        found = int(self.number >= bound)
        self.number -= bound * found
        self.range = self.range - bound if found else bound
        while self.range < 1 << 48:
            self.range <<= 8
            self._next()
        return found

    def plain(self, count: int) -> int:
        return sum(self.bit(CERTAIN // 2) << k for k in reversed(range(count)))

    def learned(self, bits: dict, key: object) -> int:
        zero, seen = bits.get(key, (CERTAIN // 2, 0))
        found = self.bit(zero)
        missing = 2 * ((0 if found else CERTAIN) - zero)
        change = abs(missing) // (2 * seen + 3) * (1 if missing > 0 else -1)
        bits[key] = (max(min(zero + change, CERTAIN - 64), 64), min(seen + 1, 255))
        return found

    def tree(self, bits: dict, key: object, count: int) -> int:
        node = 1
        for _ in range(count):
            node = node << 1 | self.learned(bits, (key, node))
        return node - (1 << count)


@codec("serializer", "difference")
def difference(leaf: Leaf, rank: int = 0, levels: bool = True, decay: bool = False) -> np.ndarray:
    known, data, dtype = leaf.reference, leaf.data, leaf.dtype
    is_float = dtype.kind not in "iub" and dtype.itemsize <= 4
    if is_float and dtype.itemsize >= 2 and (rank or decay):
        (size,) = struct.unpack_from("<I", data)
        sections, data = data[4 : 4 + size], data[4 + size :]
        if decay:
            factor, sections = take_sized(sections)
            known = _decayed(known, factor)
        if rank:
            left, sections = take_sized(sections)
            right = leaf.shared or take_sized(sections)[0]
            known = _with_product(known, left, right, rank) if right else known
    words = np.ascontiguousarray(known).reshape(-1).view(word_of(dtype)).tolist()
    if data[0] == 0:
        return np.array(words, word_of(dtype))
    rows, columns = _matrix(leaf.shape)
    low = cut(dtype, 0)[1] if is_float else 0
    mask = (1 << 8 * dtype.itemsize - 1) - 1 if is_float else 0
    exponents = [(word & mask) >> low for word in words]
    read = _sparse if data[0] == 1 else _dense
    found = read(data, exponents, rows, columns, levels and is_float)
    changed = [
        _add(word, d, 8 * dtype.itemsize, is_float) for word, d in zip(words, found, strict=True)
    ]
    return np.array(changed, word_of(dtype))


def _matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    size = math.prod(shape)
    rows = shape[0] if len(shape) > 1 and size // shape[0] >= MIN_ROW else 1
    return (2, size // 2) if rows == 1 and size >= 4096 and size % 2 == 0 else (rows, size // rows)


def _add(word: int, change: int, bits: int, is_float: bool) -> int:
    top, every = 1 << bits - 1, (1 << bits) - 1
    if not is_float:
        return (word + change) & every
    ordered = (word ^ every if word & top else word ^ top) + change & every
    return ordered ^ top if ordered & top else ordered ^ every


def _decayed(reference: np.ndarray, factor: bytes) -> np.ndarray:
    with np.errstate(all="ignore"):
        real = reference.astype(np.float32) * np.frombuffer(factor, "<f4")[0]
        return _finite(real.astype(reference.dtype), reference)


def _with_product(reference: np.ndarray, left: bytes, right: bytes, rank: int) -> np.ndarray:
    from reference.tree import decode, parse

    rows = reference.shape[0] if reference.ndim > 1 else 1
    columns, tree = reference.size // rows, parse("groupfloats(0, groups=1)")
    real = np.float32 if reference.itemsize == 2 else np.float64
    one = decode(tree, left, (rows, rank), np.dtype("<f4")).astype(real)
    other = decode(tree, right[1:], (rank, columns), np.dtype("<f4")).astype(real)
    total = np.zeros((rows, columns), real)
    with np.errstate(all="ignore"):
        for k in range(rank):
            total = total + one[:, k : k + 1] * other[k]
        total = total.reshape(reference.shape) + reference.astype(real)
        return _finite(total.astype(reference.dtype), reference)


def _finite(found: np.ndarray, reference: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(found.astype(np.float32)), found, reference)


def _sparse(data: bytes, exponents: list[int], rows: int, columns: int, levels: bool) -> list[int]:
    (size,) = struct.unpack_from("<I", data, 1)
    coders = Coder(data[5 : 5 + size]), Coder(data[5 + size :])
    lowest, zeros = _rates(coders[0])
    found, half, bits = [0] * (rows * columns), (rows + 1) // 2, {}
    for row in range(half):
        lanes = []
        for coder, own in zip(coders, (row, half + row), strict=True):
            if own < rows:
                level = coder.tree(bits, "row", 4) if levels else 8
                if level:
                    lanes.append((coder, own * columns, level + 255 - lowest))
        for column in range(columns):
            for coder, start, above in lanes:
                context = min(max(above - exponents[start + column], 0), 31)
                if coder.bit(zeros[context]):
                    found[start + column] = _change(coder, bits, context)
    return found


def _rates(coder: Coder) -> tuple[int, list[int]]:
    lowest, first, last = coder.plain(9), coder.plain(5), coder.plain(5)
    zeros, rate = [CERTAIN // 2] * 32, 0
    roots = 1048576, 961548, 881744, 808562, 741455, 679917, 623487, 571740
    for context in range(first, last + 1):
        expected = 72 if context == first else max(rate - 8, 0)
        ones = 0
        while ones < 72 and coder.plain(1):
            ones += 1
        folded = ones << 2 | coder.plain(2)
        rate = min(max(expected + (folded >> 1 ^ -(folded & 1)), 0), 144)
        zeros[context] = CERTAIN - min(max(roots[rate % 8] >> rate // 8, 1), CERTAIN - 1024)
    return lowest, zeros


def _change(coder: Coder, bits: dict, context: int) -> int:
    less, rest, group = coder.plain(1), 0, context // 4
    if coder.learned(bits, ("one", context)):
        length, rest = coder.tree(bits, ("length", group), 5), 1
        if length:
            rest = 2 | coder.learned(bits, ("second", group, length))
            rest = rest << (length - 1) | coder.plain(length - 1)
    return -rest - 1 if less else rest + 1


def _dense(data: bytes, exponents: list[int], rows: int, columns: int, levels: bool) -> list[int]:
    states, (size,), bits = data[0] >> 4, struct.unpack_from("<I", data, 1), {}
    coder = Coder(data[-size:])
    by_row = [coder.tree(bits, "row", 6) if levels else 0 for _ in range(rows)]
    lowest = coder.plain(10)
    ends = [coder.plain(6) + 1 for _ in range(coder.plain(5) + 1)]
    classes, before = [], 0
    for kind in range(121):
        before = coder.learned(bits, ("present", before))
        classes += [kind] * before
    sizes = [coder.plain(coder.plain(6)) for _ in range(5)]
    state = [coder.plain(states) for _ in range(4)]
    frequencies = [[0] * len(classes) for _ in ends]
    for column in range(len(classes)):
        for row in range(len(ends)):
            expected, kind = predict(frequencies, row, column)
            length = coder.tree(bits, ("frequency", kind), 4)
            value = 1 << (length - 1) | coder.plain(length - 1) if length else 0
            error = -((value + 1) >> 1) if value & 1 else value >> 1
            frequencies[row][column] = expected + (
                value - expected if value > 2 * expected else error
            )
    tables = [decoding_table(row, classes, states) for row in frequencies]
    streams, stored = split_streams(data[5:-size], sizes[:4], at_ends=True)
    reader, found = Bits(stored), []
    for i, exponent in enumerate(exponents):
        half = (by_row[i // columns] + 4 * (255 - exponent)) // 2
        place = min(max(half - lowest, 0), 63)
        table = tables[next(k for k, end in enumerate(ends) if place < end)]
        kind, base, count = table[state[i % 4]]
        state[i % 4] = base + next_number(streams[i % 4], count)
        low = max(kind // 4 - 1, 0)
        less = kind > 0 and reader.take(1)
        magnitude = (kind - 4 * low) << low | reader.take(low)
        found.append(-magnitude if less else magnitude)
    if any(state) or reader.position != sizes[4]:
        raise ValueError("a stream does not end where it should")
    return found
