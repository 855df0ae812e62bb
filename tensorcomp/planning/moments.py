"""Quadratic models of the loss by the errors of a weight's rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import xxhash

from tensorcomp.codecs.feedback import damped
from tensorcomp.codecs.lowrank.blas import one_thread
from tensorcomp.errors import CheckpointError

_DAMPING = 0.03  # of the mean second moment, and as much more as samples are few
_MAX_ASYMMETRY = 1e-2  # of the largest entry; bfloat16 rounds by 2⁻⁹


def weight_digest(array: np.ndarray) -> str:
    """Return a digest of values as bfloat16 has them: of a copy, the same."""
    with np.errstate(all="ignore"):  # values that are not finite, or too large
        import ml_dtypes  # only now, as all that compresses imports this module

        narrow = array.astype(np.float32, copy=False).astype(ml_dtypes.bfloat16, copy=False)
    return xxhash.xxh3_64_hexdigest(np.ascontiguousarray(narrow).view(np.uint8).data)


@dataclass(frozen=True, eq=False)
class Moment:
    """The quadratic model of the loss by the errors of a weight's rows.

    Parameters
    ----------
    stored : numpy.ndarray
        (n, n) or (groups, n, n), as it was read.
    row_weight : numpy.ndarray
        Float32 (R,); the rows r of group r // (R / groups).
    positions : int
        Of how many samples the second moment is the mean.
    transposed : bool
        Whether the weight is of inputs × outputs: its rows r are those of its transpose.
    place : str
        For messages.

    Raises
    ------
    CheckpointError
        If the weights of its rows are not finite or negative, or shapes do not fit.
    """

    stored: np.ndarray
    row_weight: np.ndarray
    positions: int
    transposed: bool = False
    place: str = "the statistics"

    def __post_init__(self) -> None:
        """Require shapes that fit together, and weights of rows that are some."""
        size, rows = self.stored.shape, self.row_weight
        if len(size) not in (2, 3) or size[-1] != size[-2] or rows.ndim != 1:
            raise CheckpointError(
                f"{self.place}: expected second moments (groups, n, n) and a weight of each row, "
                f"got {size} and {rows.shape}; measure anew"
            )
        groups = size[0] if len(size) == 3 else 1
        if not groups or len(rows) % groups or not (np.isfinite(rows) & (rows >= 0)).all():
            raise CheckpointError(
                f"{self.place}: expected weights of rows that are finite, not negative and divided "
                f"evenly among {groups} groups; measure anew"
            )

    @property
    def matrix(self) -> np.ndarray:
        """Float32 (groups, n, n), read and checked when it is asked for.

        Raises
        ------
        CheckpointError
            If they are not finite, not symmetric or have a negative diagonal.
        """
        return _matrix_of(self)

    @property
    def damping(self) -> float:
        """Multiple of the mean diagonal that is added to the diagonal."""
        inputs = int(self.stored.shape[-1])
        return _DAMPING + min(inputs / max(self.positions, 1), 1.0)

    def damped(self) -> np.ndarray:
        """Return the second moments (groups, n, n), positive definite, float64."""
        return damped(self.matrix, self.damping)

    def input_norm(self) -> np.ndarray:
        """Return ‖X‖₂ of each input over all positions, see `statistics`."""
        squares = np.diagonal(self.matrix, axis1=1, axis2=2) * max(self.positions, 1)
        return self._each_input(np.sqrt(squares))

    def input_residual(self) -> np.ndarray:
        """Return the norm of what others do not predict of each input."""
        with one_thread():
            inverse = np.linalg.inv(self.damped())
        squares = max(self.positions, 1) / np.diagonal(inverse, axis1=1, axis2=2)
        return self._each_input(np.sqrt(squares))

    def _each_input(self, values: np.ndarray) -> np.ndarray:
        """Return values (groups, n) as scores take them: of one output, or of all of them."""
        values = values.astype(np.float32)
        if len(values) > 1:
            return np.repeat(values, len(self.row_weight) // len(values), axis=0)
        return values.T if self.transposed else values[0]


@lru_cache(maxsize=2)  # not of all tensors: those of bfloat16 are copies
def _matrix_of(moment: Moment) -> np.ndarray:
    stored, place = moment.stored, moment.place
    matrix = stored.astype(np.float32, copy=False).reshape(-1, *stored.shape[-2:])
    diagonal = np.diagonal(matrix, axis1=1, axis2=2)
    largest = np.abs(diagonal).max(initial=0)
    if not np.isfinite(matrix).all():
        raise CheckpointError(f"{place}: expected finite second moments; measure anew")
    if diagonal.min(initial=0) < 0 or any(
        np.abs(one - one.T).max(initial=0) > _MAX_ASYMMETRY * largest for one in matrix
    ):
        raise CheckpointError(
            f"{place}: expected second moments that are symmetric with a non-negative "
            "diagonal; measure anew"
        )
    return matrix
