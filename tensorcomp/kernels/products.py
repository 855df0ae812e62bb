"""The product of two factors, every sum in the order of its terms: equal on every machine."""

from __future__ import annotations

from tensorcomp.kernels.bits import U
from tensorcomp.kernels.jit import jit

_BLOCK = 1024  # columns; a block of the right factor stays in the second-level cache


@jit
def _add_four(a, b, right, k, start, stop, x, y):
    """Add four terms to each element of a block of two rows."""
    a0, a1, a2, a3 = a[k], a[k + 1], a[k + 2], a[k + 3]
    b0, b1, b2, b3 = b[k], b[k + 1], b[k + 2], b[k + 3]
    r0, r1 = right[k, start:stop], right[k + 1, start:stop]
    r2, r3 = right[k + 2, start:stop], right[k + 3, start:stop]
    for j in range(U(x.size)):
        x[j] = (((x[j] + a0 * r0[j]) + a1 * r1[j]) + a2 * r2[j]) + a3 * r3[j]
        y[j] = (((y[j] + b0 * r0[j]) + b1 * r1[j]) + b2 * r2[j]) + b3 * r3[j]


@jit
def _add_one(factor, row, out):
    for j in range(U(out.size)):
        out[j] = out[j] + factor * row[j]


@jit
def multiply(left, right, out):
    """Set out (m, n) to left (m, r) × right (r, n): terms are added from the first to the last.

    All are float32, or all float64; nothing is fused or reordered.
    """
    rows, rank = left.shape
    for start in range(0, right.shape[1], _BLOCK):
        stop = min(start + _BLOCK, right.shape[1])
        out[:, start:stop] = 0
        for i in range(0, rows - 1, 2):
            for k in range(0, rank - 3, 4):
                x, y = out[i, start:stop], out[i + 1, start:stop]
                _add_four(left[i], left[i + 1], right, k, start, stop, x, y)
        for i in range(rows):
            alone = i == rows - 1 and rows % 2 == 1
            for k in range(0 if alone else rank // 4 * 4, rank):
                _add_one(left[i, k], right[k, start:stop], out[i, start:stop])
