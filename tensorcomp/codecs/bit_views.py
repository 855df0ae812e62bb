"""Arrays of any dtype seen as unsigned integers of the same size."""

from __future__ import annotations

import functools

import numpy as np

from tensorcomp.errors import NotRepresentable

MIN_ROW = 16  # a level, a group or a span costs 3 bits or so: a shorter row cannot earn it
_UNSIGNED: dict[int, np.dtype] = {
    1: np.dtype("u1"),
    2: np.dtype("<u2"),
    4: np.dtype("<u4"),
    8: np.dtype("<u8"),
}


@functools.cache
def word_dtype(dtype: np.dtype) -> np.dtype:
    """Return the unsigned integer dtype of the same size."""
    word = _UNSIGNED.get(dtype.itemsize)
    if word is None:
        raise NotRepresentable(f"expected elements of 1, 2, 4 or 8 bytes, got {dtype}")
    return word


def as_words(array: np.ndarray) -> np.ndarray:
    """Return a view of the array's bits as unsigned integers, in the same shape."""
    return array.view(word_dtype(array.dtype))


def as_long_rows(array: np.ndarray) -> np.ndarray:
    """Return what `as_rows` does, but a single row where rows are short."""
    rows = as_rows(array)
    return rows if rows.shape[1] >= MIN_ROW else rows.reshape(1, -1)


def as_rows(array: np.ndarray) -> np.ndarray:
    """Return a C-contiguous array as a matrix: its first axis × all the others.

    A scalar or a vector is one row; an array without elements is 0 × 0.
    """
    if array.size == 0:
        return array.reshape(0, 0)
    return array.reshape(array.shape[0] if array.ndim > 1 else 1, -1)


def readable(array: np.ndarray) -> np.ndarray:
    """Return a C-contiguous, aligned, native, read-only view or copy.

    Kernels are compiled once per array type, so they get one type only.
    """
    array = np.asarray(array)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    flags = array.flags
    if flags.c_contiguous and flags.aligned and not flags.writeable:
        return array
    if not (flags.c_contiguous and flags.aligned):
        array = np.require(array, requirements=("C", "A"))
    view = array.view()
    view.setflags(write=False)
    return view
