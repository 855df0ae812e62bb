"""Bit planes: rows of words packed at any width, in loops that vectorise.

A row of C words, `width` bits each, is stored as whole byte planes from the lowest byte up, then at
most three planes of 4, 2 and 1 bits. A plane of b < 8 bits has q = ceil(C * b / 8) bytes, and byte
i holds the words i, i + q, i + 2 q, … from its low bits up: neighbours stay in neighbouring lanes.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bits import U
from tensorcomp.kernels.jit import jit


@jit
def packed_size(columns, width):
    """Return the bytes of one packed row."""
    size = columns * (width // 8)
    for bits in (4, 2, 1):
        if width & bits:
            size += (columns * bits + 7) // 8
    return size


@jit
def row_ors(words, ors):
    """Set `ors` (R,) uint64 to the union of the bits of each row of `words` (R, C)."""
    for r in range(words.shape[0]):
        union = words[r, 0]
        for c in range(words.shape[1]):
            union |= words[r, c]
        ors[r] = union


@jit
def pack(words, shifts, widths, out):
    """Pack the bits shifts[r] … shifts[r] + widths[r] of each row of `words` (R, C) into `out`.

    shifts and widths (R,) uint8; out uint8, zero at first, of the rows' packed sizes.
    """
    position = 0
    columns = words.shape[1]
    for r in range(words.shape[0]):
        row = words[r]
        shift = U(shifts[r])
        width = np.int64(widths[r])
        for _ in range(width // 8):
            plane = out[position : position + columns]
            for c in range(columns):
                plane[c] = (U(row[c]) >> shift) & U(255)
            position += columns
            shift += U(8)
        for bits in (4, 2, 1):
            if width & bits:
                quarter = (columns * bits + 7) // 8
                plane = out[position : position + quarter]
                mask = (U(1) << U(bits)) - U(1)
                for k in range(8 // bits):
                    lane = row[k * quarter : min((k + 1) * quarter, columns)]
                    up = U(k * bits)
                    for c in range(lane.size):
                        plane[c] |= ((U(lane[c]) >> shift) & mask) << up
                position += quarter
                shift += U(bits)


@jit
def unpack(data, shifts, widths, words):
    """Undo `pack` into `words` (R, C), zero at first; `data` has the rows' packed sizes."""
    position = 0
    columns = words.shape[1]
    for r in range(words.shape[0]):
        row = words[r]
        shift = U(shifts[r])
        width = np.int64(widths[r])
        for _ in range(width // 8):
            plane = data[position : position + columns]
            for c in range(columns):
                row[c] |= U(plane[c]) << shift
            position += columns
            shift += U(8)
        for bits in (4, 2, 1):
            if width & bits:
                quarter = (columns * bits + 7) // 8
                plane = data[position : position + quarter]
                mask = (U(1) << U(bits)) - U(1)
                for k in range(8 // bits):
                    lane = row[k * quarter : min((k + 1) * quarter, columns)]
                    down = U(k * bits)
                    for c in range(lane.size):
                        lane[c] |= ((U(plane[c]) >> down) & mask) << shift
                position += quarter
                shift += U(bits)
