"""Trellis-coded quantization: the best path by the Viterbi algorithm, and what codes stand for.

Element i belongs to machine i % 64 (see `codecs.machines`), so that each loop over machines runs in
vector registers. Everything that decides a code is integer arithmetic on positions: elements in
1/32,768 step. Modulo two steps, which is their low 16 bits, a position tells how far the nearest
points of the four subsets are.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bits import U
from tensorcomp.kernels.jit import jit

LANES = 64
STEP = 1 << 15
_HALF = STEP // 2
_LARGEST = 32766 * STEP
_COST_BITS = 19  # a cost is a squared distance of at most STEP**2 shifted by this: 11 bits
_UNREACHED = (
    10_241  # above five branches' costs: a path from state 0 has reached every state by then
)
_BETWEEN = 8  # steps between two looks at the least metric, so that none leaves 16 bits


@jit
def to_positions(values, scale, positions):
    """Set positions (n,) int32 to values (n,) × scale, rounded; return whether all are in range."""
    limit = values.dtype.type(_LARGEST)
    beyond = False
    for i in range(values.size):
        position = values[i] * scale
        beyond |= abs(position) > limit
        positions[i] = np.int32(np.rint(min(max(position, -limit), limit)))
    return not beyond


@jit
def _set_costs(positions, costs):
    """Set costs (4, 64): at 2 q + z that of the nearest point of quantizer q, code of parity z."""
    for lane in range(LANES):
        position = positions[lane]
        whole = np.int32(abs(np.int32(np.int16(position))))
        half = np.int32(abs(np.int32(np.int16(position - np.int32(_HALF)))))
        costs[0, lane] = np.uint32(whole * whole) >> np.uint32(_COST_BITS)
        whole = np.int32(STEP) - whole
        costs[1, lane] = np.uint32(whole * whole) >> np.uint32(_COST_BITS)
        costs[3, lane] = np.uint32(half * half) >> np.uint32(_COST_BITS)
        half = np.int32(STEP) - half
        costs[2, lane] = np.uint32(half * half) >> np.uint32(_COST_BITS)


@jit
def _merge(first, second, even, odd, upper, lower, decisions, upper_bit, lower_bit):
    """Let the paths of two states compete for the two states that both lead to.

    The first state reaches `upper` by an even code and `lower` by an odd one, the second the other
    way round. A decision is the parity that won.
    """
    none = decisions.dtype.type(0)
    for lane in range(LANES):
        a = np.int16(first[lane] + even[lane])
        b = np.int16(second[lane] + odd[lane])
        c = np.int16(second[lane] + even[lane])
        d = np.int16(first[lane] + odd[lane])
        upper[lane] = b if b < a else a
        lower[lane] = d if d < c else c
        odd_ones = (upper_bit if b < a else none) | (lower_bit if d < c else none)
        decisions[lane] = decisions[lane] | odd_ones


@jit
def search(positions, feedback, forward, decisions, last):
    """Find the path of least squared error for each machine, forwards.

    positions (R, 64) int32. Sets decisions (R, 64), unsigned with a bit for each state: the parity
    by which the best path gets there; and last (64,) uint32: the best state in the end.
    """
    states = 1 << (width_of(feedback))
    metrics = np.full((states, LANES), _UNREACHED, np.int16)
    metrics[0] = 0
    following = np.empty_like(metrics)
    costs = np.empty((4, LANES), np.int16)
    one = decisions.dtype.type(1)
    for i in range(positions.shape[0]):
        _set_costs(positions[i], costs)
        decisions[i] = 0
        for state in range(states):
            partner = state ^ forward
            if partner < state:
                continue
            quantizer = state & 1
            upper = (state >> 1) ^ (quantizer * (feedback >> 1))
            lower = upper ^ (forward >> 1)
            _merge(
                metrics[state],
                metrics[partner],
                costs[2 * quantizer],
                costs[2 * quantizer + 1],
                following[upper],
                following[lower],
                decisions[i],
                decisions.dtype.type(one << upper),
                decisions.dtype.type(one << lower),
            )
        metrics, following = following, metrics
        if i % _BETWEEN == _BETWEEN - 1:
            following[0] = metrics[0]
            for state in range(states):
                for lane in range(LANES):
                    metrics[state, lane] = np.int16(metrics[state, lane] - following[0, lane])
    for lane in range(LANES):
        best = 0
        for state in range(states):
            if metrics[state, lane] < metrics[best, lane]:
                best = state
        last[lane] = best


@jit
def width_of(feedback):
    """Return the bits of a state: the degree of the polynomial."""
    width = 0
    while feedback >> (width + 1) > 0:
        width += 1
    return width


@jit
def trace(positions, feedback, forward, decisions, last, codes):
    """Set codes (R, 64) int16 to those of the best paths, backwards from the states `last`."""
    top = np.uint32(width_of(feedback) - 1)
    mask = np.uint32((2 << top) - 1)
    by_quantizer, by_parity = np.uint32(feedback >> 1), np.uint32(forward >> 1)
    zero, one = np.uint32(0), np.uint32(1)
    states = last.copy()
    for i in range(positions.shape[0] - 1, -1, -1):
        decided, position, out = decisions[i], positions[i], codes[i]
        for lane in range(LANES):
            state = states[lane]
            parity = np.uint32(np.uint32(decided[lane]) >> state) & one
            quantizer = np.uint32(state >> top)
            before = state ^ np.uint32(by_quantizer & np.uint32(zero - quantizer))
            before = before ^ np.uint32(by_parity & np.uint32(zero - parity))
            states[lane] = np.uint32(np.uint32(before << one) & mask) | quantizer
            place = np.int32(position[lane] + np.int32(quantizer << np.uint32(14)))
            place = np.int32(place - np.int32(parity << np.uint32(15)) + np.int32(STEP))
            out[lane] = np.int16(2 * (place >> 16) + np.int32(parity))


@jit
def _advance(states, quantizers, parities, by_quantizer, by_parity):
    """Name the quantizer of each machine, then move it on by the parity of its code; all uint8."""
    zero, one = np.uint8(0), np.uint8(1)
    for lane in range(LANES):
        state = states[lane]
        quantizer = np.uint8(state & one)
        quantizers[lane] = quantizer
        state = np.uint8(state >> one) ^ np.uint8(by_quantizer & np.uint8(zero - quantizer))
        states[lane] = state ^ np.uint8(by_parity & np.uint8(zero - parities[lane]))


@jit
def fill_quantizers(symbols, fold, feedback, forward, quantizers):
    """Set the quantizer, 0 or 1, of each element, quantizers (n,) uint8.

    symbols (n,) unsigned; the parity of a code is that of its bits 0 and `fold` together: 1 where
    codes are folded (0, -1, 1, -2 … are 0, 1, 2, 3 …), 16 where they are not.
    """
    by_quantizer, by_parity = np.uint8(feedback >> 1), np.uint8(forward >> 1)
    states = np.zeros(LANES, np.uint8)
    parities = np.zeros(LANES, np.uint8)
    row = np.empty(LANES, np.uint8)
    whole = symbols.size // LANES * LANES
    for start in range(0, whole, LANES):
        some = symbols[start : start + LANES]
        for lane in range(LANES):
            symbol = np.uint32(some[lane])
            parities[lane] = np.uint8(symbol ^ (symbol >> np.uint32(fold))) & np.uint8(1)
        _advance(states, quantizers[start : start + LANES], parities, by_quantizer, by_parity)
    _advance(states, row, parities, by_quantizer, by_parity)
    quantizers[whole:] = row[: symbols.size - whole]


@jit
def sum_residuals(positions, codes, quantizers, stride, sums, counts):
    """Add up how far magnitudes lie above that of their points, in 1/32,768 step.

    Of each `stride` elements the first 64 are taken. sums, counts (M,) int64, zero at first: of the
    points at 0 … ±(M - 1) half steps.
    """
    for start in range(0, codes.size, stride):
        for i in range(start, min(start + LANES, codes.size)):
            point = 2 * np.int64(codes[i]) - np.int64(quantizers[i])
            magnitude = abs(point)
            if magnitude < sums.size:
                above = np.int64(positions[i]) - point * _HALF
                sums[magnitude] += above if point >= 0 else -above
                counts[magnitude] += 1


@jit
def look_up(codes, quantizers, lowest, table, out):
    """Set out[i] = table[2 codes[i] - quantizers[i] - lowest]: the table has every such place."""
    for i in range(U(codes.size)):
        out[i] = table[U(2 * np.int64(codes[i]) - np.int64(quantizers[i]) - lowest)]


@jit
def add_offsets(indices, quantizers, offset, out):
    """Set out (n,) uint16 to indices (n,), plus `offset` where the quantizer (n,) is 1."""
    step = np.uint16(offset)
    for i in range(out.size):
        chosen = np.uint16(step & np.uint16(np.uint16(0) - np.uint16(quantizers[i])))
        out[i] = np.uint16(np.uint16(indices[i]) + chosen)
