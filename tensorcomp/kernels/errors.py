"""One pass over two arrays: every sum that the error figures need.

Sums are double precision in a fixed order, so equal arrays give equal figures on every machine: 32
lanes, each of which takes four elements at a time, then the rest, then the lanes in their order.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.jit import jit

_LANES = 32
_BLOCK = 4 * _LANES


@jit
def error_sums(x, y):
    """Return the sums of two float arrays (n,): see the last line for which, in what order.

    All elements are finite; sums that are not tell that they were not, or that squares overflow.
    """
    lanes = np.zeros((7, _LANES), np.float64)
    whole = x.size // _BLOCK * _BLOCK
    for start in range(0, whole, _BLOCK):
        for j in range(_LANES):  # over independent lanes, so that it is compiled to vectors
            i = start + j
            x0, y0 = np.float64(x[i]), np.float64(y[i])
            x1, y1 = np.float64(x[i + _LANES]), np.float64(y[i + _LANES])
            x2, y2 = np.float64(x[i + 2 * _LANES]), np.float64(y[i + 2 * _LANES])
            x3, y3 = np.float64(x[i + 3 * _LANES]), np.float64(y[i + 3 * _LANES])
            d0, d1, d2, d3 = abs(x0 - y0), abs(x1 - y1), abs(x2 - y2), abs(x3 - y3)
            lanes[0, j] += (d0 + d1) + (d2 + d3)
            lanes[1, j] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)
            lanes[2, j] += (x0 * x0 + x1 * x1) + (x2 * x2 + x3 * x3)
            lanes[3, j] += (y0 * y0 + y1 * y1) + (y2 * y2 + y3 * y3)
            lanes[4, j] += (x0 * y0 + x1 * y1) + (x2 * y2 + x3 * y3)
            first = d0 if d0 > d1 else d1
            second = d2 if d2 > d3 else d3
            most = first if first > second else second
            lanes[5, j] = most if most > lanes[5, j] else lanes[5, j]
            x0, x1, x2, x3 = abs(x0), abs(x1), abs(x2), abs(x3)
            first = x0 if x0 > x1 else x1
            second = x2 if x2 > x3 else x3
            most = first if first > second else second
            lanes[6, j] = most if most > lanes[6, j] else lanes[6, j]
    for i in range(whole, x.size):
        x0, y0 = np.float64(x[i]), np.float64(y[i])
        d0 = abs(x0 - y0)
        lanes[0, 0] += d0
        lanes[1, 0] += d0 * d0
        lanes[2, 0] += x0 * x0
        lanes[3, 0] += y0 * y0
        lanes[4, 0] += x0 * y0
        lanes[5, 0] = max(lanes[5, 0], d0)
        lanes[6, 0] = max(lanes[6, 0], abs(x0))
    for j in range(1, _LANES):
        for k in range(5):
            lanes[k, 0] += lanes[k, j]
        for k in range(5, 7):
            lanes[k, 0] = max(lanes[k, 0], lanes[k, j])
    total = lanes[:, 0]
    # Σ|x-y|, Σ(x-y)², Σx², Σy², Σxy, max |x-y|, max |x|
    return total[0], total[1], total[2], total[3], total[4], total[5], total[6]
