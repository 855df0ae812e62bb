"""Tables of small integers: frequencies or code lengths, a row for each context, a column a symbol.

They are coded like a grey image (LOCO-I, Weinberger, Seroussi & Sapiro 2000), column by column, in
each column from the first row on. What a number is expected to be follows from its neighbours: the
one to the left, the one above and the one at the corner between them (0 where there is none, but in
the first row what is expected is the number to the left):

- min(left, above) if the corner is at least as large as both,
- max(left, above) if the corner is at most as large as both,
- else left + above - corner.

The class of a number is the bit length of ``|left - corner| + |above - corner|``, in the first row
that of the number to the left. Each class knows the sum and the number of the values it has seen;
at first two, of the sum ``(1 << class) // 2``; both are halved when the number gets to 32. The
values have Rice codes with as many low bits b as is the least for which ``number << b >= sum``:
the value without its low bits in ones, a zero, the low bits. Where there would be 16 ones or more,
there are 16 of them, and the value follows in 14 bits.

A value tells the error e = number - expected: up to twice what is expected, even values are e and
odd ones are -e (0, -1, 1, -2 … are 0, 1, 2, 3 …); larger values are e + expected.
"""

from reference.bits import Bits

_UNARY = 16
_PLAIN = 14
_MEMORY = 32


def read_table(bits: Bits, rows: int, columns: int) -> list[list[int]]:
    """Return a table of rows × columns."""
    table = [[0] * columns for _ in range(rows)]
    sums = [(1 << kind) >> 1 for kind in range(_UNARY)]
    numbers = [2] * _UNARY
    for column in range(columns):
        for row in range(rows):
            expected, kind = predict(table, row, column)
            low_bits = 0
            while numbers[kind] << low_bits < sums[kind]:
                low_bits += 1
            value = _read_value(bits, low_bits)
            if value > 2 * expected:
                error = value - expected
            else:
                error = -((value + 1) >> 1) if value & 1 else value >> 1
            table[row][column] = expected + error
            sums[kind] += value
            numbers[kind] += 1
            if numbers[kind] >= _MEMORY:
                sums[kind] >>= 1
                numbers[kind] >>= 1
    return table


def predict(table: list[list[int]], row: int, column: int) -> tuple[int, int]:
    """Return what a number is expected to be, and its class."""
    left = table[row][column - 1] if column else 0
    if row == 0:
        return left, left.bit_length()
    above = table[row - 1][column]
    corner = table[row - 1][column - 1] if column else 0
    kind = (abs(left - corner) + abs(above - corner)).bit_length()
    if corner >= max(left, above):
        return min(left, above), kind
    if corner <= min(left, above):
        return max(left, above), kind
    return left + above - corner, kind


def _read_value(bits: Bits, low_bits: int) -> int:
    ones = 0
    while ones < _UNARY and bits.take(1):
        ones += 1
    if ones == _UNARY:
        return bits.take(_PLAIN)
    return ones << low_bits | bits.take(low_bits)
