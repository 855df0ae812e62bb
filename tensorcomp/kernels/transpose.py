"""Bytes of a matrix turned eight by eight in registers."""

from __future__ import annotations

from tensorcomp.kernels.bits import U, load64
from tensorcomp.kernels.jit import jit, quick

SIDE = 8  # of a tile
_HALVES, _QUARTERS, _BYTES = U(0x00000000FFFFFFFF), U(0x0000FFFF0000FFFF), U(0x00FF00FF00FF00FF)


@quick
def _swap(upper, lower, shift, mask):
    """Swap what is right of the diagonal in `upper` with what is left of it in `lower`."""
    moved = ((upper >> shift) ^ lower) & mask
    return upper ^ (moved << shift), lower ^ moved


@jit
def turned_tile(source, s0, s1, s2, s3, s4, s5, s6, s7):
    """Return the eight columns, as words, of the tile whose rows are the eight bytes from s0 … s7.

    Three rounds swap the off-diagonal 4 × 4 blocks, then 2 × 2 blocks, then bytes (Warren,
    "Hacker's Delight", 7-3). source uint8, flat.
    """
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
    return a, b, c, d, e, f, g, h
