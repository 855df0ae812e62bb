"""Integer frequencies: chosen from counts, and coded in few bits.

Tables of frequencies, one row a context, are smooth: they are coded like a small grey image, by the
LOCO-I predictor (Weinberger, Seroussi & Sapiro 2000) and Golomb-Rice codes that adapt to how much
the neighbours differ.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bit_io import bit_length, get_bits, put_bits
from tensorcomp.kernels.bits import U
from tensorcomp.kernels.jit import jit, quick

LONGEST_CODE = 30  # bits of a frequency at most: 16 ones, then 14 bits
_UNARY = 16
_PLAIN = 14
_MEMORY = 32  # observations after which old ones count half


@quick
def normalize(counts, states, log2, frequencies):
    """Set `frequencies` (K, A) int64: per context 2**states in all, and no other choice is cheaper.

    counts (K, A) int64, at most 2**states of a row above 0; log2 (2**states + 1,) int64, rising.
    Every symbol with a count gets at least 1; a row without counts stays 0. Returns what the
    symbols cost then, in the unit of `log2`.
    """
    total = np.int64(1) << states
    cost = np.int64(0)
    for context in range(counts.shape[0]):
        row = counts[context]
        chosen = frequencies[context]
        everything = row.sum()
        given = np.int64(0)
        for a in range(row.size):
            chosen[a] = 0
            if row[a] > 0:
                chosen[a] = max(1, (row[a] * total + everything // 2) // everything)
                given += chosen[a]
        if given == 0:
            continue
        while given < total:
            chosen[_best_gain(row, chosen, log2)[0]] += 1
            given += 1
        while given > total:
            chosen[_least_loss(row, chosen, log2)[0]] -= 1
            given -= 1
        while True:  # the cost is convex, but for rounding: where no exchange helps, nothing does
            up, gain = _best_gain(row, chosen, log2)
            down, loss = _least_loss(row, chosen, log2)
            if gain <= loss or up == down:
                break
            chosen[up] += 1
            chosen[down] -= 1
        for a in range(row.size):
            if row[a] > 0:
                cost += row[a] * (log2[total] - log2[chosen[a]])
    return cost


@quick
def _best_gain(row, chosen, log2):
    best = 0
    most = np.int64(-1)
    for a in range(row.size):
        if 0 < chosen[a] < log2.size - 1:
            gain = row[a] * (log2[chosen[a] + 1] - log2[chosen[a]])
            if gain > most:
                best = a
                most = gain
    return best, most


@quick
def _least_loss(row, chosen, log2):
    best = 0
    least = np.int64(0x7FFFFFFFFFFFFFFF)
    for a in range(row.size):
        if chosen[a] > 1:
            loss = row[a] * (log2[chosen[a]] - log2[chosen[a] - 1])
            if loss < least:
                best = a
                least = loss
    return best, least


@quick
def _predict(frequencies, context, a):
    """Return the LOCO-I prediction and the class of activity around a frequency."""
    left = frequencies[context, a - 1] if a > 0 else np.int64(0)
    if context == 0:
        return left, bit_length(left)
    above = frequencies[context - 1, a]
    corner = frequencies[context - 1, a - 1] if a > 0 else np.int64(0)
    activity = bit_length(abs(left - corner) + abs(above - corner))
    if corner >= max(left, above):
        return min(left, above), activity
    if corner <= min(left, above):
        return max(left, above), activity
    return left + above - corner, activity


@quick
def _new_means():
    """Return sums and numbers of what each class has seen; half its range at first."""
    sums = (np.int64(1) << np.arange(16)) >> 1
    return sums, np.full(16, 2, np.int64)


@quick
def _rice_bits(total, seen):
    bits = np.int64(0)
    while seen << bits < total:
        bits += 1
    return bits


@quick
def _learn(sums, numbers, activity, value):
    sums[activity] += value
    numbers[activity] += 1
    if numbers[activity] >= _MEMORY:
        sums[activity] >>= 1
        numbers[activity] >>= 1


@quick
def pack(frequencies, out):
    """Code `frequencies` (K, A) into `out`, uint8 zeros with 8 bytes to spare; return the bits."""
    sums, numbers = _new_means()
    position = np.int64(0)
    for a in range(frequencies.shape[1]):
        for context in range(frequencies.shape[0]):
            expected, activity = _predict(frequencies, context, a)
            error = frequencies[context, a] - expected
            if abs(error) > expected:
                value = error + expected
            else:
                value = 2 * error if error >= 0 else -2 * error - 1
            bits = _rice_bits(sums[activity], numbers[activity])
            ones = value >> bits
            if ones < _UNARY:
                position = put_bits(out, position, (np.int64(1) << ones) - 1, ones + 1)
                position = put_bits(out, position, value & ((np.int64(1) << bits) - 1), bits)
            else:
                position = put_bits(out, position, (np.int64(1) << _UNARY) - 1, _UNARY)
                position = put_bits(out, position, value, _PLAIN)
            _learn(sums, numbers, activity, value)
    return position


@quick
def unpack(data, total, frequencies):
    """Read `frequencies` (K, A) from `data`, uint8 with 8 bytes to spare; return the bits read.

    Returns -1 if the data end too early or a frequency is not in 0 .. total.
    """
    sums, numbers = _new_means()
    position = np.int64(0)
    limit = 8 * (np.int64(data.size) - 8)
    for a in range(frequencies.shape[1]):
        for context in range(frequencies.shape[0]):
            if position >= limit:
                return np.int64(-1)
            expected, activity = _predict(frequencies, context, a)
            bits = _rice_bits(sums[activity], numbers[activity])
            word = get_bits(data, position, 32)
            ones = np.int64(0)
            while ones < _UNARY and (word >> ones) & 1:
                ones += 1
            if ones < _UNARY:
                low = (word >> (ones + 1)) & ((np.int64(1) << bits) - 1)
                value = (ones << bits) | low
                position += ones + 1 + bits
            else:
                value = (word >> _UNARY) & ((np.int64(1) << _PLAIN) - 1)
                position += _UNARY + _PLAIN
            if value > 2 * expected:
                error = value - expected
            else:
                error = -((value + 1) >> 1) if value & 1 else value >> 1
            found = expected + error
            if not 0 <= found <= total:
                return np.int64(-1)
            frequencies[context, a] = found
            _learn(sums, numbers, activity, value)
    return position if position <= limit else np.int64(-1)


@jit
def gather_escaped(symbols, indices, escaped, out):
    """Put the symbols (n,) whose index (n,) has escaped[index] = 1 into `out`, in order.

    `out` has room for one more than there are.
    """
    found = U(0)
    for i in range(U(0), U(symbols.size)):
        out[found] = symbols[i]
        found += U(escaped[indices[i]])


@jit
def pack_values(values, width, out):
    """Write values of `width` bits one behind the other into `out`, zeros with 8 bytes to spare."""
    position = np.int64(0)
    for i in range(values.size):
        position = put_bits(out, position, values[i], width)


@jit
def unpack_values(data, width, values):
    """Read what `pack_values` wrote; `data` has 8 bytes to spare."""
    position = np.int64(0)
    for i in range(values.size):
        values[i] = get_bits(data, position, width)
        position += width
