"""Report the zeros of a checkpoint, and what they save."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorcomp.pruning.keep_indices import KeptSlices


class _Zeros:
    """Parts of elements that are zero and that are not."""

    elements: int
    zeros: int

    @property
    def sparsity(self) -> float:
        """The exact part of the elements that is zero; 0 without elements."""
        return self.zeros / self.elements if self.elements else 0.0

    @property
    def density(self) -> float:
        """The part of the elements that is not zero; 1 without elements."""
        return (self.elements - self.zeros) / self.elements if self.elements else 1.0


@dataclass(frozen=True)
class SparsityRow(_Zeros):
    """The zeros of one tensor, and its bytes in its file and under each storage."""

    name: str
    file: str | None  # of a folder
    dtype: str
    shape: tuple[int, ...]
    zeros: int  # of either sign
    negative_zeros: int
    kept: KeptSlices | None = field(repr=False)  # None with less than two axes
    stored: int | None  # None where there is no file
    sizes: Mapping[str, int] = field(default_factory=dict)
    best: str = ""  # the storage of the fewest bytes
    pattern: tuple[int, int] | None = None  # no m neighbours have more than n values
    is_weight: bool = True  # of floats that are not all 0 or 1: those are masks

    @property
    def elements(self) -> int:  # type: ignore[override]
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def dead_rows(self) -> int | None:
        """Slices of the first axis that are all zero; None with fewer than two axes."""
        return None if self.kept is None else self.kept.dead_rows

    @property
    def dead_columns(self) -> int | None:
        """Slices of the second axis that are zero: columns, channels."""
        return None if self.kept is None else self.kept.dead_columns


@dataclass(frozen=True)
class SparsityReport(_Zeros):
    """The zeros of a checkpoint.

    Parameters
    ----------
    rows : tuple of SparsityRow
        Of the tensors that are listed.
    elements, zeros : int
        Of all float tensors but masks together, listed or not; of a weight that torch prunes as it
        is used, ``weight_orig`` × ``weight_mask``.
    kept : mapping of str to KeptSlices
        Of all float tensors of two axes or more, by name; of tensors with the same name in several
        files of a folder, by ``file:name``.
    """

    rows: tuple[SparsityRow, ...]
    elements: int
    zeros: int
    kept: Mapping[str, KeptSlices] = field(default_factory=dict, repr=False)

    @property
    def negative_zeros(self) -> int:
        """Zeros of the listed tensors that are −0.0."""
        return sum(row.negative_zeros for row in self.rows)

    def total(self, storage: str) -> int | None:
        """Return the bytes of all listed tensors under a storage.

        None if some lack it.
        """
        if not all(storage in row.sizes for row in self.rows):
            return None
        return sum(row.sizes[storage] for row in self.rows)

    @property
    def best_bytes(self) -> int:
        """Bytes of all listed tensors, each under its best storage."""
        return sum(row.sizes[row.best] for row in self.rows)
