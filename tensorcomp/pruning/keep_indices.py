"""List the rows and columns that pruning left, for tools that remove others."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class KeptSlices:
    """The rows and columns of a tensor that are not all zero, by ascending index.

    Rows are slices of the first axis (filters, output channels), columns those of the second.
    """

    shape: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]

    @property
    def dead_rows(self) -> int:
        """Number of slices of the first axis that are zero."""
        return self.shape[0] - len(self.rows)

    @property
    def dead_columns(self) -> int:
        """Number of slices of the second axis that are zero."""
        return self.shape[1] - len(self.columns)


def kept_slices(array: np.ndarray) -> KeptSlices:
    """Find the slices of the first two axes that are not all zero.

    Zeros of either sign are zeros, and NaN is none.

    Examples
    --------
    >>> kept_slices(np.array([[0.0, 0.0, 0.0], [2.0, 0.0, -0.0]]))
    KeptSlices(shape=(2, 3), rows=(1,), columns=(0,))
    """
    inner = math.prod(array.shape[2:])
    rows = np.zeros(array.shape[0], np.bool_)
    columns = np.zeros(array.shape[1], np.bool_)
    step = max((1 << 20) // max(math.prod(array.shape[1:]), 1), 1)
    for start in range(0, array.shape[0], step):
        with np.errstate(invalid="ignore"):  # signalling NaN
            held = array[start : start + step] != 0
        along = held.reshape(len(held), array.shape[1], inner).any(axis=2)
        rows[start : start + step] = along.any(axis=1)
        columns |= along.any(axis=0)
    kept = (tuple(np.flatnonzero(held).tolist()) for held in (rows, columns))
    return KeptSlices(array.shape, *kept)


def keep_indices(tensors: Mapping[str, np.ndarray]) -> dict[str, KeptSlices]:
    """Find the kept slices of masks, or of pruned tensors, of two axes or more."""
    arrays = ((name, tensors[name]) for name in sorted(tensors))  # read one at a time
    return {name: kept_slices(array) for name, array in arrays if array.ndim > 1}


def save_keep_indices(
    kept: Mapping[str, KeptSlices], path: str | os.PathLike[str], *, force: bool = False
) -> None:
    """Write kept slices to a JSON file; `force` replaces an existing one.

    ::

        {"fc1.weight": {"shape": [300, 784], "kept_rows": [0, 2, …], "kept_columns": [130, …]}, …}

    Raises
    ------
    CheckpointError
        If it cannot be written, or exists.
    """
    from tensorcomp.io.files import atomic_file
    from tensorcomp.io.locations import location

    value = {
        name: {"shape": own.shape, "kept_rows": own.rows, "kept_columns": own.columns}
        for name, own in kept.items()
    }
    with atomic_file(location(path), force=force) as file:
        file.write((json.dumps(value, ensure_ascii=False) + "\n").encode("utf-8"))
