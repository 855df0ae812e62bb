"""Define the result of comparing two checkpoints."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tensorcomp.codecs.rounding import is_float
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.metrics.distortion import ErrorSums


@dataclass(frozen=True, slots=True)
class ComparedTensor:
    """Type, shape and stored bytes of a tensor in one of two checkpoints.

    Parameters
    ----------
    dtype : str
    shape : tuple of int
    stored : int
        Bytes that it takes in its file; 0 for a duplicate or tied name.
    """

    dtype: str
    shape: tuple[int, ...]
    stored: int


@dataclass(frozen=True, slots=True)
class TensorComparison:
    """One tensor of two checkpoints, a (the original) and b.

    Parameters
    ----------
    name : str
    file : str or None
        In which file of a folder.
    a, b : ComparedTensor or None
        None where the checkpoint lacks it.
    errors : ErrorSums or None
        None where the two cannot be compared.
    problem : str
        Why they cannot; empty if they can.
    statistics : str
        Those by which errors of the output were measured; empty if there were none.
    """

    name: str
    file: str | None
    a: ComparedTensor | None
    b: ComparedTensor | None
    errors: ErrorSums | None = None
    problem: str = ""
    statistics: str = ""

    @property
    def ratio(self) -> float | None:
        """Bytes of a / bytes of b; None if either takes none."""
        if self.a is None or self.b is None or not self.a.stored or not self.b.stored:
            return None
        return self.a.stored / self.b.stored

    @property
    def is_float(self) -> bool:
        """Whether `a` holds floats or complex numbers: the totals are over these."""
        dtype = None if self.a is None else numpy_dtype(self.a.dtype)
        return dtype is not None and (dtype.kind == "c" or is_float(dtype))


@dataclass(frozen=True)
class Comparison:
    """Two checkpoints, a (the original) and b.

    Parameters
    ----------
    a_bytes, b_bytes : int
        Sizes of their files, every byte counted.
    tensors : tuple of TensorComparison
        In the order of a; then those that b alone has.
    """

    a_bytes: int
    b_bytes: int
    tensors: tuple[TensorComparison, ...]

    @property
    def ratio(self) -> float:
        """Bytes of a / bytes of b."""
        return self.a_bytes / self.b_bytes

    @functools.cached_property
    def total(self) -> ErrorSums:
        """Errors of all floats together, without integers such as step counts."""
        parts = (row.errors for row in self.tensors if row.is_float and row.errors is not None)
        return sum(parts, ErrorSums())

    @property
    def loss(self) -> float | None:
        """Loss that all differences are predicted to add; None without statistics."""
        known = {  # tied tensors have the same statistics
            row.statistics: row.errors.loss
            for row in self.tensors
            if row.statistics and row.errors is not None
        }
        return sum(known.values()) if known else None

    @property
    def problems(self) -> tuple[TensorComparison, ...]:
        """The tensors that cannot be compared."""
        return tuple(row for row in self.tensors if row.problem)

    @property
    def exact(self) -> bool:
        """Whether both have the same tensors with the same values."""
        return all(row.errors is not None and row.errors.exact for row in self.tensors)
