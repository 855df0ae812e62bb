"""The transform `fields`, and the serializers that do in one step what it does with subtrees.

*Cut.* The word of a float has its sign on top, then the exponent, then the mantissa. It is cut in
two: the exponent with the top `mantissa_bits` bits of the mantissa below it; and the other bits of
the mantissa, with the sign above them. What is no float is cut like a float of its size: 4, 5, 8
or 11 bits of exponent for 1, 2, 4 or 8 bytes. No more bits than there are go with the exponent.

*fields*: parts ``exponent`` and ``mantissa``, each of the narrowest unsigned dtype that holds it.

*floats* and *groupfloats* see an array as a matrix (see `codec.matrix_shape`), or as a single row
if its rows have fewer than 16 elements. Layout: side information, streams, each from a whole byte
on, planes (see `bits`) of the mantissas with the sign, zeros so that there are 8 bytes of planes
and zeros at least. The side information is one stream of bits:

1. log2 of the number of contexts (3 bits), the longest code (4), whether rows have a (shift, width)
   of their own (1); of `groupfloats` then how many mantissa bits go with the exponent (3), and the
   base of symbols (16);
2. the symbols that occur: the first one (16 bits), how many there are (gamma), then how much
   greater each is than the one before (gamma);
3. only if there are several contexts: of `floats` the contexts, see below; of `groupfloats` the
   group of each row, as levels;
4. the streams' bits: the bits w of a number (5), the least (w); the bits d of a number (5), and
   how much more than the least each one is (d each);
5. the shift and the width (7 bits each) of all planes, or, if rows have their own, of runs of rows,
   each behind the number of its rows (gamma);
6. from a whole byte on, the lengths of codes as a table (see `rice`), a row for each context.

*Levels*, numbers below 16: the lengths (3 bits each) of the codes of the numbers 0 … 15, then
canonical codes.

*floats* has eight streams: symbol i, in row-major order, is in stream i mod 8. Contexts: the lowest
sum of levels l (5 bits), a span s (5), log2 of a number n (3); the rows' levels; the columns'
levels, unless chunks share them (see `contexts`). Sum x falls in step (x - l) n // s, at least 0
and at most n - 1; of n steps each n / contexts neighbours are one context.

*groupfloats* has six streams. Rows, or columns with ``along="columns"`` where there are several
rows, belong to groups, the contexts. Their symbols are coded group by group, in a group row by row
(or column by column), in their order. The symbols of a group are cut into six parts, each a sixth
of them, rounded down, the last one with what is left; part j goes to stream j, behind that of the
group before. A symbol is 0 for a word that has no bits set in its exponent and the mantissa bits
that go with it, else these bits less the base.
"""

import ml_dtypes
import numpy as np

from reference.bits import Bits, canonical, check_end, next_symbol, split_streams, unpack_planes
from reference.codec import Leaf, Parts, Shape, codec, matrix_shape, word_of
from reference.contexts import SUMS, shared_columns, spread
from reference.rice import read_table

LEVELS = 16
MIN_ROW = 16
EXPONENT_BITS = {
    np.dtype(np.float64): 11,
    np.dtype(np.float32): 8,
    np.dtype(np.float16): 5,
    np.dtype(ml_dtypes.bfloat16): 8,
    np.dtype(ml_dtypes.float8_e4m3fn): 4,
    np.dtype(ml_dtypes.float8_e4m3fnuz): 4,
    np.dtype(ml_dtypes.float8_e5m2): 5,
    np.dtype(ml_dtypes.float8_e5m2fnuz): 5,
}
OF_SIZE = {1: 4, 2: 5, 4: 8, 8: 11}


def cut(dtype: np.dtype, mantissa_bits: int) -> tuple[int, int]:
    """Return the bits of the exponent's part, and those of the mantissa in the other."""
    total = 8 * dtype.itemsize - 1
    high = min(EXPONENT_BITS.get(dtype, OF_SIZE[dtype.itemsize]) + mantissa_bits, total)
    return high, total - high


def joined(high: np.ndarray, rest: np.ndarray, low: int, dtype: np.dtype) -> np.ndarray:
    """Put the two parts of floats together; `low` bits of the mantissa are in the second."""
    rest = rest.astype(np.uint64)
    sign = rest >> np.uint64(low) << np.uint64(8 * dtype.itemsize - 1)
    below = rest & np.uint64((1 << low) - 1)
    return (sign | high.astype(np.uint64) << np.uint64(low) | below).astype(word_of(dtype))


@codec("transform", "fields", {"exponent": "huffman(contexts=8)", "mantissa": "bitpack"})
def fields(parts: Parts, mantissa_bits: int = 0) -> np.ndarray:
    high, low = cut(parts.dtype, mantissa_bits)
    exponent = parts.read("exponent", parts.shape, _narrowest(high))
    mantissa = parts.read("mantissa", parts.shape, _narrowest(low + 1))
    return joined(exponent, mantissa, low, parts.dtype)


def _narrowest(bits: int) -> np.dtype:
    return np.dtype(f"<u{next(size for size in (1, 2, 4, 8) if 8 * size >= bits)}")


@codec("serializer", "floats")
def floats(leaf: Leaf, mantissa_bits: int = 2, contexts: int = 8) -> np.ndarray:
    rows, columns = _rows(leaf.shape)
    side = Bits(leaf.data)
    number, apart = _read_head(side)
    alphabet = _read_alphabet(side)
    chosen = [0] * (rows * columns)
    if number > 1:
        context_of = _read_steps(side, number)
        by_row = _read_levels(side, rows)
        by_column = shared_columns(leaf.shared) if leaf.shared else _read_levels(side, columns)
        chosen = spread(context_of, by_row, by_column)
    sizes = _read_sizes(side, 8)
    spans = _read_spans(side, rows if apart else 1)
    codes = _read_codes(side, number, len(alphabet))
    streams, planes = split_streams(leaf.data[side.align() :], sizes)
    symbols = [
        alphabet[next_symbol(streams[i % 8], codes[context])] for i, context in enumerate(chosen)
    ]
    rest, used = unpack_planes(planes, spans, rows, columns)
    check_end(streams, planes[used:], max(8 - used, 0))
    return joined(np.array(symbols), rest, cut(leaf.dtype, mantissa_bits)[1], leaf.dtype)


@codec("serializer", "groupfloats")
def groupfloats(
    leaf: Leaf, mantissa_bits: int = 2, groups: int = 8, along: str = "rows"
) -> np.ndarray:
    rows, columns = _rows(leaf.shape)
    by_columns = along == "columns" and rows > 1
    lines, length = (columns, rows) if by_columns else (rows, columns)
    side = Bits(leaf.data)
    number, apart = _read_head(side)
    low = cut(leaf.dtype, 0)[1] - side.take(3)
    base = side.take(16)
    alphabet = _read_alphabet(side)
    group_of = _read_levels(side, lines) if number > 1 else np.zeros(lines, np.uint8)
    sizes = _read_sizes(side, 6)
    spans = _read_spans(side, rows if apart else 1)
    codes = _read_codes(side, number, len(alphabet))
    streams, planes = split_streams(leaf.data[side.align() :], sizes)
    symbols = np.zeros((lines, length), np.int64)
    for group in range(number):
        members = np.flatnonzero(group_of == group)
        size = members.size * length
        ends = [size // 6 * (j + 1) for j in range(5)] + [size]
        run = []
        for bits, end in zip(streams, ends, strict=True):
            while len(run) < end:
                run.append(alphabet[next_symbol(bits, codes[group])])
        symbols[members] = np.array(run, np.int64).reshape(members.size, length)
    if by_columns:
        symbols = symbols.T
    high = np.where(symbols > 0, symbols + base, 0).reshape(-1)
    rest, used = unpack_planes(planes, spans, rows, columns)
    check_end(streams, planes[used:], max(8 - used, 0))
    return joined(high, rest, low, leaf.dtype)


def _rows(shape: Shape) -> tuple[int, int]:
    rows, columns = matrix_shape(shape)
    return (rows, columns) if columns >= MIN_ROW else (1, rows * columns)


def _read_head(side: Bits) -> tuple[int, bool]:
    number = 1 << side.take(3)
    side.take(4)
    return number, side.take(1) == 1


def _read_alphabet(side: Bits) -> list[int]:
    symbols = [side.take(16)]
    for _ in range(side.gamma() - 1):
        symbols.append(symbols[-1] + side.gamma())
    return symbols


def _read_steps(side: Bits, number: int) -> np.ndarray:
    """Return the context of each sum of two levels."""
    lowest, span, steps = side.take(5), side.take(5), 1 << side.take(3)
    step_of = np.clip((np.arange(SUMS) - lowest) * steps // span, 0, steps - 1)
    return step_of // (steps // number)


def _read_levels(side: Bits, count: int) -> np.ndarray:
    codes = canonical([side.take(3) for _ in range(LEVELS)])
    return np.array([side.symbol(codes) for _ in range(count)], np.uint8)


def _read_sizes(side: Bits, streams: int) -> list[int]:
    least = side.take(side.take(5))
    width = side.take(5)
    return [least + side.take(width) for _ in range(streams)]


def _read_spans(side: Bits, count: int) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    while len(spans) < count:
        run = side.gamma() if count > 1 else 1
        spans += [(side.take(7), side.take(7))] * run
    return spans


def _read_codes(side: Bits, number: int, symbols: int) -> list[dict[int, int]]:
    side.align()
    return [canonical(lengths) for lengths in read_table(side, number, symbols)]
