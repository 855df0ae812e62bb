"""Products of Householder reflections as one matrix of low rank, in double precision.

The product of the reflections I - 2 v vᵀ at unit vectors v₁ … vᵣ, the columns of V, is I - V T Vᵀ
with an upper triangular T (Schreiber & Van Loan 1989, the compact WY representation).
"""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.jit import jit


@jit
def triangle(vectors, out):
    """Set `out` (r, r) to T for the reflections at integer vectors (r, n) int8, scaled to length 1.

    Returns the lengths, (r,) float64. A vector of zeros stands for no reflection: its row and
    column are zeros. Sums are exact, or have a fixed order.
    """
    count = vectors.shape[0]
    lengths = np.empty(count, np.float64)
    gram = np.empty(count, np.float64)
    out[:] = 0
    for j in range(count):
        for k in range(j + 1):
            total = np.int64(0)
            for i in range(vectors.shape[1]):
                total += np.int64(vectors[j, i]) * np.int64(vectors[k, i])
            gram[k] = np.float64(total)
        lengths[j] = np.sqrt(gram[j])
        if lengths[j] == 0:
            continue
        for k in range(j):
            gram[k] = gram[k] / (lengths[k] * lengths[j]) if lengths[k] > 0 else 0.0
        for i in range(j):
            total_row = 0.0
            for k in range(i, j):
                total_row += out[i, k] * gram[k]
            out[i, j] = -2.0 * total_row
        out[j, j] = 2.0
    return lengths


@jit
def scale_rows(vectors, lengths, out):
    """Set `out` (r, n), float32 or float64, to vectors (r, n) int8 over their lengths."""
    for j in range(vectors.shape[0]):
        inverse = 1.0 / lengths[j] if lengths[j] > 0 else 0.0
        for i in range(vectors.shape[1]):
            out[j, i] = np.float64(vectors[j, i]) * inverse
