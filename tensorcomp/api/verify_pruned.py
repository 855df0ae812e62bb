"""Verify pruned tensors against their records and originals.

The mask is not stored: it is among the zeros that are decoded. A tensor whose tree is lossless must
be the original, bit for bit, but for +0.0 in at most so many places as were pruned. Of a lossy one
the error of the kept weights is what is left of the whole error without that of the pruned ones:
the decoded zeros hold all of these, and their norm is told in all digits.
"""

from __future__ import annotations

import math

import numpy as np

from tensorcomp.codecs.bit_views import as_words
from tensorcomp.container.records import PruningRecord, TensorRecord
from tensorcomp.errors import VerificationError
from tensorcomp.metrics.distortion import ErrorSums, measure

_ROUNDING = 1e-12  # of sums of squares, which are added up in another order than they were


class PrunedCheck:
    """Accumulate the checks of a pruned tensor chunk by chunk.

    Parameters
    ----------
    record : TensorRecord
        Of a pruned tensor.
    dtype : numpy.dtype
    lossless : bool
        Whether its trees keep every bit.
    where : str
        The file and the tensor, for error messages.
    """

    def __init__(
        self, record: TensorRecord, dtype: np.dtype, *, lossless: bool, where: str
    ) -> None:
        assert record.pruned is not None
        self._pruned: PruningRecord = record.pruned
        self._bound = record.bound
        self._dtype = dtype
        self._lossless = lossless
        self._where = where
        self._zeros = self._changed = self._large = 0
        self._kept = self._zeroed = ErrorSums()
        self.errors = ErrorSums()

    def add(self, decoded: np.ndarray, original: np.ndarray | None) -> None:
        """Take the next bytes, as decoded and, if it is there, of the original.

        Raises
        ------
        VerificationError
            If they differ from the original otherwise than by pruning.
        """
        now = decoded.view(self._dtype)
        zeros = as_words(now) == 0
        self._zeros += int(np.count_nonzero(zeros))
        if original is None:
            return
        before = original.view(self._dtype)
        self.errors += measure(before, now)
        if self._lossless:
            changed = as_words(before) != as_words(now)
            self._changed += int(np.count_nonzero(changed))
            if (changed & ~zeros).any():
                raise VerificationError(
                    f"{self._where} differs from the original where it was not pruned"
                )
            return
        self._kept += measure(before[~zeros], now[~zeros])
        dropped = before[zeros]
        self._zeroed += measure(dropped, np.zeros_like(dropped))
        most = self._bound.get("max_abs_error")
        if most is not None:
            self._large += int(np.count_nonzero(np.abs(dropped.astype(np.float64)) > most))

    def finish(self, *, compared: bool) -> None:
        """Check what was gathered of all bytes; `compared` if the original was there.

        Raises
        ------
        VerificationError
            If they are not what the record says.
        """
        count = self._pruned.count
        if self._zeros < count:
            raise VerificationError(
                f"{self._where} has {self._zeros:,} zeros; {count:,} of its elements are said to "
                "be pruned"
            )
        if not compared:
            return
        lost = max(self._changed, self._large)
        if lost > count:
            raise VerificationError(
                f"{self._where} lost {lost:,} elements; {count:,} are said to be pruned"
            )
        cost = (self._pruned.rel_l2 * self.errors.norm) ** 2
        if self._lossless:
            self._require_cost(self.errors.squared_error, cost)
        elif cost > self._zeroed.x_squared * (1 + _ROUNDING):
            raise VerificationError(
                f"{self._where} lost less by pruning than {self._pruned.rel_l2:.6g} of its norm"
            )
        else:
            self._require_bound(cost)

    def _require_cost(self, found: float, told: float) -> None:
        if abs(found - told) > _ROUNDING * max(found, told):
            share = math.sqrt(found) / (self.errors.norm or 1.0)
            raise VerificationError(
                f"{self._where} lost {share:.6g} of its norm by pruning, and not "
                f"{self._pruned.rel_l2:.6g} ({abs(share - self._pruned.rel_l2):.1g} off)"
            )

    def _require_bound(self, cost: float) -> None:
        """Check the bound of the kept weights, relative to their norm."""
        kept = self._kept.max_abs
        bound = self._bound.get("max_abs_error")
        if bound is not None and kept > bound:
            raise VerificationError(
                f"{self._where} has max_abs_error {kept:.6g} at weights that were kept, "
                f"{bound:.6g} is promised"
            )
        bound = self._bound.get("max_rel_l2")
        if bound is None:
            return
        squared = self._kept.squared_error + max(self._zeroed.x_squared - cost, 0.0)
        left = max(self.errors.x_squared - cost, 0.0)
        if squared > bound**2 * left + _ROUNDING * self._zeroed.x_squared:
            rel_l2 = math.sqrt(squared / left) if left else math.inf
            raise VerificationError(
                f"{self._where} has max_rel_l2 {rel_l2:.6g} at weights that were kept, "
                f"{bound:.6g} is promised"
            )
