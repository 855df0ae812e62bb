"""Contexts: classes of elements by the scale of their row and of their column.

Each row and each column of a matrix (see `codec.matrix_shape`) has a level from 0 to 15, a byte.
The context of an element is a step function of the sum of its two levels: a byte for each of the
31 sums. Chunks of long rows may share the columns' levels; what they share then is a block of two
sections (see `bits`): the width of a level (uint64), which only an encoder needs, and the levels.
"""

import numpy as np

from reference.bits import unpack_sections
from reference.codec import Leaf, matrix_shape

SUMS = 31


def shared_columns(shared: bytes) -> np.ndarray:
    """Return the columns' levels that chunks share."""
    return np.frombuffer(unpack_sections(shared)[1], np.uint8)


def spread(context_of: np.ndarray, by_row: np.ndarray, by_column: np.ndarray) -> list[int]:
    """Return the context of each element of a matrix, in row-major order."""
    sums = by_row.astype(np.int64)[:, None] + by_column
    return context_of[sums].reshape(-1).tolist()


def read_contexts(sections: list[bytes], number: int, leaf: Leaf) -> list[int]:
    """Return the context of each symbol; of a single context nothing is stored.

    Parameters
    ----------
    sections : list of bytes
        The context of each sum; the levels of rows and, if they are not shared, of columns.
    number : int
        Contexts that elements may have; one, if elements have more than 2 bytes.
    leaf : Leaf
    """
    if number == 1:
        return [0] * (leaf.size if leaf.dtype.itemsize <= 2 else leaf.size * leaf.dtype.itemsize)
    rows, _ = matrix_shape(leaf.shape)
    levels = np.frombuffer(sections[1], np.uint8)
    by_column = shared_columns(leaf.shared) if leaf.shared else levels[rows:]
    return spread(np.frombuffer(sections[0], np.uint8), levels[:rows], by_column)
