"""Groups of elements that share a scale.

With `group` > 0 a group is a run of so many elements of a row (see `codec.matrix_shape`); the last
one of a row may be shorter. With -1 it is a row, with 0 the whole array. Groups are numbered row by
row.

A value is number × scale + offset of its group in float64. Beyond the largest number of the array's
dtype it becomes that number. It is rounded to float32, and then to the array's dtype, or at once to
float64. The offset is 0 where there is none, so that -0.0 becomes 0.0.
"""

import numpy as np

from reference.codec import Parts, Shape, largest, matrix_shape, work_dtype


def _layout(shape: Shape, group: int) -> tuple[int, int, int]:
    """Return rows, columns, and elements of a group."""
    rows, columns = matrix_shape(shape)
    if group == 0:
        rows, columns = min(rows, 1), rows * columns
    return rows, columns, min(group, columns) if group > 0 else columns


def read_scales(parts: Parts, name: str, group: int) -> np.ndarray:
    """Return a part that has a number for each group, float32, or float64 for float64 arrays."""
    rows, columns, length = _layout(parts.shape, group)
    count = rows * -(-columns // length) if rows else 0
    return parts.read(name, (count,), work_dtype(parts.dtype))


def scaled(
    parts: Parts,
    numbers: np.ndarray,
    scales: np.ndarray,
    group: int,
    offsets: np.ndarray | None = None,
) -> np.ndarray:
    """Return the values of an array's numbers."""
    rows, columns, length = _layout(parts.shape, group)
    if not rows:
        return np.empty(0, parts.dtype)
    offsets = np.zeros_like(scales) if offsets is None else offsets
    place = np.arange(rows)[:, None] * -(-columns // length) + np.arange(columns) // length
    numbers = numbers.reshape(rows, columns).astype(np.float64)
    values = numbers * scales[place].astype(np.float64) + offsets[place].astype(np.float64)
    values = np.clip(values, -largest(parts.dtype), largest(parts.dtype))
    return values.astype(work_dtype(parts.dtype)).astype(parts.dtype)
