"""The decoder of `kernels.ans` for two quantizers: which one codes a symbol, past symbols tell.

Symbol i steps machine i % 64 (see `codecs.machines`). The states of all machines are words of 64
bits, one for each bit of a state, and move on together. They need the parity of every symbol, so
the values of escaped symbols are put in here and not afterwards.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.ans import BATCH, STREAMS, UNROLL, _refill
from tensorcomp.kernels.bits import U, leading_zeros
from tensorcomp.kernels.jit import jit
from tensorcomp.kernels.trellis import LANES, width_of

_LAST_BATCH = U(LANES - BATCH)


@jit
def _take(table, bases, at, word, x, quantizer, offset, fold, out):
    """Decode one symbol; return what is left of the word, the state, the symbol and its parity."""
    place = x + quantizer * offset
    if bases is not None:
        place += U(bases[at])
    entry = U(table[place])
    symbol = entry & U(0xFFFF)
    out[at] = symbol
    used = (entry >> U(16)) & U(15)
    x = (entry >> U(20)) + (word & ((U(1) << used) - U(1)))
    return word >> used, x, symbol, (symbol ^ (symbol >> fold)) & U(1)


@jit
def _put_escaped(out, start, stop, fold, escape, values, taken):
    """Put escaped values into out[start:stop]; return the parities there, and how many are taken.

    When no value is left, the escape symbol stays.
    """
    parities = U(0)
    for i in range(stop - start):
        at = start + U(i)
        if U(out[at]) == escape:
            if taken < values.size:
                out[at] = values[taken]
            taken += 1
        symbol = U(out[at])
        parities |= ((symbol ^ (symbol >> fold)) & U(1)) << U(i)
    return parities, taken


@jit
def _advance(planes, parities, feedback, forward):
    """Move all machines on: planes (v,) uint64 hold the bits of their states, lowest bits first."""
    quantizers = planes[0]
    for b in range(planes.size):
        bit = planes[b + 1] if b + 1 < planes.size else U(0)
        bit ^= quantizers if (feedback >> (b + 1)) & 1 else U(0)
        planes[b] = bit ^ (parities if (forward >> (b + 1)) & 1 else U(0))


@jit
def decode(
    stream, starts, table, bases, offset, fold, feedback, forward, escape, values, out, ends, x
):
    """Read four streams as `kernels.ans.decode` does; return how often the escape symbol came.

    table has the contexts of quantizer 0, and from `offset` on those of quantizer 1. fold as in
    `kernels.trellis.fill_quantizers`; feedback, forward, the machine's polynomials. values (E,)
    take the place of `escape`, in their order.
    """
    n = U(out.size)
    stop = n - n % U(BATCH)
    limit = U(stream.size - 8)
    one, two, three = U(1), U(2), U(3)
    offset, fold, escape = U(offset), U(fold), U(escape)
    planes = np.zeros(width_of(feedback), np.uint64)
    parities = U(0)
    taken = 0
    p0, p1, p2, p3 = U(starts[0]), U(starts[1]), U(starts[2]), U(starts[3])
    x0, x1, x2, x3 = x[0], x[1], x[2], x[3]
    for i in range(U(0), stop, U(BATCH)):
        w0 = _refill(stream, p0, limit)
        w1 = _refill(stream, p1, limit)
        w2 = _refill(stream, p2, limit)
        w3 = _refill(stream, p3, limit)
        lane = i & U(LANES - 1)
        quantizers = planes[0] >> lane
        found = U(0)
        escaped = False
        for k in range(UNROLL):
            j = U(k) * U(STREAMS)
            at = i + j
            q = quantizers >> j
            w0, x0, s0, z0 = _take(table, bases, at, w0, x0, q & one, offset, fold, out)
            q >>= one
            w1, x1, s1, z1 = _take(table, bases, at + one, w1, x1, q & one, offset, fold, out)
            q >>= one
            w2, x2, s2, z2 = _take(table, bases, at + two, w2, x2, q & one, offset, fold, out)
            q >>= one
            w3, x3, s3, z3 = _take(table, bases, at + three, w3, x3, q & one, offset, fold, out)
            found |= (z0 | (z1 << one) | (z2 << two) | (z3 << three)) << j
            escaped |= (s0 == escape) | (s1 == escape) | (s2 == escape) | (s3 == escape)
        if escaped:
            found, taken = _put_escaped(out, i, i + U(BATCH), fold, escape, values, taken)
        parities |= found << lane
        if lane == _LAST_BATCH:
            _advance(planes, parities, feedback, forward)
            parities = U(0)
        p0 += leading_zeros(w0)
        p1 += leading_zeros(w1)
        p2 += leading_zeros(w2)
        p3 += leading_zeros(w3)
    ends[0], ends[1], ends[2], ends[3] = p0, p1, p2, p3
    x[0], x[1], x[2], x[3] = x0, x1, x2, x3
    for i in range(stop, n):  # fewer than a batch: machines need not move on any more
        j = i & U(STREAMS - 1)
        word, q = _refill(stream, U(ends[j]), limit), (planes[0] >> (i & U(LANES - 1))) & one
        word, x[j], _, _ = _take(table, bases, i, word, x[j], q, offset, fold, out)
        ends[j] += np.int64(leading_zeros(word))
    return _put_escaped(out, stop, n, fold, escape, values, taken)[1]
