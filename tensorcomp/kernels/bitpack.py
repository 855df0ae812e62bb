"""Bit planes: rows of words packed at any width, in loops that vectorise.

A row of C words, `width` bits each, is stored as whole byte planes from the lowest byte up, then,
of the bits that are left, at most three planes of 4, 2 and 1 bits. A plane of b < 8 bits has
q = ceil(C * b / 8) bytes, and byte i holds the words i, i + q, i + 2 q, … from its low bits up:
neighbours stay in neighbouring lanes.
"""

from __future__ import annotations

import numpy as np

from tensorcomp.kernels.bits import U, both, either, leading_zeros, resize, shift_left, shift_right
from tensorcomp.kernels.jit import jit, quick

BLOCK = 4096  # words a row where an array's own rows are not told apart: fits the first cache


@jit
def pack_array(rows, told_apart):
    """Return (spans, planes) of `rows` (R, C): a span for each row where that takes fewer bytes.

    Otherwise there is one span, (1, 2), and the words are packed in rows of `BLOCK`. Rows may only
    be `told_apart` if asked for.
    """
    spans = np.empty((rows.shape[0], 2), np.uint8)
    shift, width = row_spans(rows, spans)
    by_row = packed_bytes(spans, rows.shape[1])
    if (
        told_apart
        and rows.shape[0] > 1
        and by_row + 2 * rows.shape[0] < (rows.size * np.int64(width) + 7) // 8
    ):
        planes = np.empty(by_row, np.uint8)
        pack(rows, spans, planes)
        return spans, planes
    planes = np.empty(flat_bytes(rows.size, np.int64(width)), np.uint8)
    pack_flat(rows.reshape(rows.size), shift, width, planes)
    spans = np.empty((1, 2), np.uint8)
    spans[0, 0] = shift
    spans[0, 1] = width
    return spans, planes


@jit
def pack_flat(flat, shift, width, out):
    """Pack words (n,) of one span in rows of `BLOCK`, the last one shorter."""
    blocks, rest = flat.size // BLOCK, flat.size % BLOCK
    spans = np.empty((max(blocks, 1), 2), np.uint8)
    spans[:, 0] = shift
    spans[:, 1] = width
    pack(flat[: flat.size - rest].reshape(blocks, BLOCK), spans, out)
    if rest > 0:
        begin = blocks * packed_size(BLOCK, np.int64(width))
        pack(flat[flat.size - rest :].reshape(1, rest), spans, out[begin:])


@quick
def flat_bytes(size, width):
    """Return the bytes of so many words packed in rows of `BLOCK`."""
    rest = packed_size(size % BLOCK, width) if size % BLOCK else 0
    return size // BLOCK * packed_size(BLOCK, width) + rest


@jit
def unpack_flat(planes, span, flat):
    """Undo `pack_array` with one span, (1, 2), into `flat` (n,); `planes` has the right size."""
    blocks, rest = flat.size // BLOCK, flat.size % BLOCK
    spans = np.empty((max(blocks, 1), 2), np.uint8)
    spans[:, 0] = span[0, 0]
    spans[:, 1] = span[0, 1]
    begin = blocks * packed_size(BLOCK, np.int64(span[0, 1]))
    unpack(planes[:begin], spans, flat[: flat.size - rest].reshape(blocks, BLOCK))
    if rest > 0:
        unpack(planes[begin:], spans, flat[flat.size - rest :].reshape(1, rest))


@quick
def packed_size(columns, width):
    """Return the bytes of one packed row."""
    size = columns * (width // 8)
    for bits in (4, 2, 1):
        if width & bits:
            size += (columns * bits + 7) // 8
    return size


@jit
def row_spans(words, spans):
    """Set `spans` (R, 2) uint8 to each row's (shift, width): the span of the bits that it uses.

    Returns the span of all rows together. Rows without a set bit have the span (0, 0).
    """
    union_of_all = U(0)
    for r in range(words.shape[0]):
        union = words[r, 0]
        for c in range(words.shape[1]):
            union = either(union, words[r, c])
        spans[r, 0], spans[r, 1] = _span(U(union))
        union_of_all |= U(union)
    return _span(union_of_all)


@quick
def _span(union):
    if union == U(0):
        return np.uint8(0), np.uint8(0)
    lowest = union & (~union + U(1))
    shift = U(63) - leading_zeros(lowest)
    return np.uint8(shift), np.uint8(U(64) - leading_zeros(union) - shift)


@quick
def packed_bytes(spans, columns):
    """Return the bytes of all packed rows."""
    total = 0
    for r in range(spans.shape[0]):
        total += packed_size(columns, np.int64(spans[r, 1]))
    return total


@jit
def pack(words, spans, out):
    """Pack each row of `words` (R, C), its bits from spans[r, 0] on, spans[r, 1] of them.

    spans (R, 2) uint8; out uint8 of the rows' packed sizes.
    """
    position = 0
    columns = words.shape[1]
    left = np.empty(columns, np.uint8)  # what whole byte planes leave of a row
    for r in range(words.shape[0]):
        row = words[r]
        shift = U(spans[r, 0])
        width = np.int64(spans[r, 1])
        for _ in range(width // 8):
            plane = out[position : position + columns]
            for c in range(columns):
                plane[c] = resize(shift_right(row[c], shift), plane[c])
            position += columns
            shift += U(8)
        if width & 7:
            for c in range(columns):
                left[c] = resize(shift_right(row[c], shift), left[c])
        for bits in (4, 2, 1):
            if width & bits:
                size = (columns * bits + 7) // 8
                _pack_plane(left, bits, out[position : position + size])
                position += size


@jit
def _pack_plane(left, bits, plane):
    """Move the lowest `bits` of each byte of `left` into `plane`, and the others down."""
    size = plane.size
    up = U(bits)
    mask = (U(1) << up) - U(1)
    for i in range(size):
        plane[i] = both(left[i], mask)
        left[i] = shift_right(left[i], up)
    shift = up
    for begin in range(size, left.size, size):
        lane = left[begin : begin + size]
        for i in range(lane.size):
            plane[i] = either(plane[i], shift_left(both(lane[i], mask), shift))
            lane[i] = shift_right(lane[i], up)
        shift += up


@jit
def unpack(data, spans, words):
    """Undo `pack` into `words` (R, C); `data` has the rows' packed sizes."""
    position = 0
    columns = words.shape[1]
    left = np.empty(columns, np.uint8)
    for r in range(words.shape[0]):
        width = np.int64(spans[r, 1])
        size = packed_size(columns, width)
        _unpack_row(data[position : position + size], U(spans[r, 0]), width, left, words[r])
        position += size


@jit
def _unpack_row(data, shift, width, left, row):
    """Undo `pack` for one row; as few passes over it as its width allows."""
    columns = row.size
    whole = width // 8
    if width & 7:
        _unpack_left(data[whole * columns :], width & 7, left)
    else:
        left[:] = 0
    high = (shift + U(8 * whole)) & U(8 * row.itemsize - 1)  # nothing is left at a whole width
    if whole == 0:
        for c in range(columns):
            row[c] = shift_left(resize(left[c], row[c]), high)
        return
    first = data[:columns]
    if whole == 1:
        for c in range(columns):
            below = shift_left(resize(first[c], row[c]), shift)
            row[c] = either(below, shift_left(resize(left[c], row[c]), high))
        return
    second = data[columns : 2 * columns]
    next_shift = shift + U(8)
    for c in range(columns):
        below = shift_left(resize(first[c], row[c]), shift)
        below = either(below, shift_left(resize(second[c], row[c]), next_shift))
        row[c] = either(below, shift_left(resize(left[c], row[c]), high))
    for k in range(2, whole):
        plane = data[k * columns : (k + 1) * columns]
        next_shift = shift + U(8 * k)
        for c in range(columns):
            row[c] = either(row[c], shift_left(resize(plane[c], row[c]), next_shift))


@jit
def _unpack_left(data, width, left):
    """Set `left` to the bits, fewer than 8, that whole byte planes leave of each word."""
    used = U(0)
    start = 0
    for bits in (4, 2, 1):
        if width & bits:
            size = (left.size * bits + 7) // 8
            _unpack_plane(data[start : start + size], bits, used, left)
            used += U(bits)
            start += size


@jit
def _unpack_plane(plane, bits, used, left):
    """Put a plane's bits above the lowest `used` bits of each byte of `left`."""
    size = plane.size
    up = U(bits)
    mask = (U(1) << up) - U(1)
    keep = (U(1) << used) - U(1)
    shift = U(0)
    for begin in range(0, left.size, size):
        lane = left[begin : begin + size]
        for i in range(lane.size):
            field = both(shift_right(plane[i], shift), mask)
            lane[i] = either(both(lane[i], keep), shift_left(field, used))
        shift += up
