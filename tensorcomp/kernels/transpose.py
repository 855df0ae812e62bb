"""Bytes of a matrix turned eight by eight in registers."""

from __future__ import annotations

from tensorcomp.kernels.bits import U, load64, store64
from tensorcomp.kernels.jit import jit, quick

SIDE = 8  # of a tile
_HALVES, _QUARTERS, _BYTES = U(0x00000000FFFFFFFF), U(0x0000FFFF0000FFFF), U(0x00FF00FF00FF00FF)


@quick
def _swap(upper, lower, shift, mask):
    """Swap what is right of the diagonal in `upper` with what is left of it in `lower`."""
    moved = ((upper >> shift) ^ lower) & mask
    return upper ^ (moved << shift), lower ^ moved


@jit
def turn_tile(source, starts, target, ends):
    """Turn a tile: its rows are eight bytes from each of `starts` on, its columns go to `ends`.

    Three rounds swap the off-diagonal 4 × 4 blocks, then 2 × 2 blocks, then bytes (Warren,
    "Hacker's Delight", 7-3). source, target uint8, flat; starts, ends: eight places in them.
    """
    s0, s1, s2, s3, s4, s5, s6, s7 = starts
    t0, t1, t2, t3, t4, t5, t6, t7 = ends
    a, b, c, d = load64(source, s0), load64(source, s1), load64(source, s2), load64(source, s3)
    e, f, g, h = load64(source, s4), load64(source, s5), load64(source, s6), load64(source, s7)
    a, e = _swap(a, e, U(32), _HALVES)
    b, f = _swap(b, f, U(32), _HALVES)
    c, g = _swap(c, g, U(32), _HALVES)
    d, h = _swap(d, h, U(32), _HALVES)
    a, c = _swap(a, c, U(16), _QUARTERS)
    b, d = _swap(b, d, U(16), _QUARTERS)
    e, g = _swap(e, g, U(16), _QUARTERS)
    f, h = _swap(f, h, U(16), _QUARTERS)
    a, b = _swap(a, b, U(8), _BYTES)
    c, d = _swap(c, d, U(8), _BYTES)
    e, f = _swap(e, f, U(8), _BYTES)
    g, h = _swap(g, h, U(8), _BYTES)
    store64(target, t0, a)
    store64(target, t1, b)
    store64(target, t2, c)
    store64(target, t3, d)
    store64(target, t4, e)
    store64(target, t5, f)
    store64(target, t6, g)
    store64(target, t7, h)


@jit
def eight_rows(at, columns):
    """Return where eight rows of `columns` bytes each have the byte that the first has at `at`."""
    return (
        at, at + columns, at + 2 * columns, at + 3 * columns,
        at + 4 * columns, at + 5 * columns, at + 6 * columns, at + 7 * columns,
    )  # fmt: skip


@jit
def eight_places(places, c, columns, at):
    """Return where the rows places[c] … places[c + 7], of `columns` bytes each, have byte `at`."""
    return (
        places[c] * columns + at, places[c + 1] * columns + at,
        places[c + 2] * columns + at, places[c + 3] * columns + at,
        places[c + 4] * columns + at, places[c + 5] * columns + at,
        places[c + 6] * columns + at, places[c + 7] * columns + at,
    )  # fmt: skip
