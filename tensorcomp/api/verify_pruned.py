"""Verify pruned tensors against their records and originals.

The mask is not stored: it is among the zeros that are decoded. A tensor whose tree is lossless must
be the original, bit for bit, but for +0.0 in at most so many places as were pruned. Of a lossy one
the error of the kept weights is what is left of the whole error without that of the pruned ones:
the decoded zeros hold all of these, and their norm is recorded in all digits.

Where kept weights make up for the pruned ones, they differ from the original: by what is recorded
if the tree is lossless. What a lossy one adds to that is no more than its bound.
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
    """Accumulate the checks of a pruned tensor chunk by chunk."""

    def __init__(self, record: TensorRecord, dtype: np.dtype, *, lossless: bool) -> None:
        assert record.pruned is not None
        self._pruned: PruningRecord = record.pruned
        self._bound = record.bound
        self._dtype = dtype
        self._lossless = lossless
        self._zeros = self._changed = self._large = 0
        self._kept = self._zeroed = ErrorSums()
        self.errors = ErrorSums()

    def add(self, decoded: np.ndarray, original: np.ndarray | None) -> None:
        """Take the next bytes, as decoded and, if it is there, of the original."""
        now = decoded.view(self._dtype)
        zeros = as_words(now) == 0
        self._zeros += int(np.count_nonzero(zeros))
        if original is None:
            return
        before = original.view(self._dtype)
        self.errors += measure(before, now)
        if self._lossless:
            changed = as_words(before) != as_words(now)
            self._changed += int(np.count_nonzero(changed & zeros))
            elsewhere = not self._pruned.repaired and bool((changed & ~zeros).any())
            self._fail_if(elsewhere, "differs from the original where it was not pruned")
            return
        if self._pruned.repaired:
            return  # what was encoded is not known
        self._kept += measure(before[~zeros], now[~zeros])
        dropped = before[zeros]
        self._zeroed += measure(dropped, np.zeros_like(dropped))
        most = self._bound.get("max_abs_error")
        if most is not None:
            self._large += int(np.count_nonzero(np.abs(dropped.astype(np.float64)) > most))

    def finish(self, *, compared: bool) -> None:
        """Check what was gathered of all bytes; `compared` if the original was there."""
        count, share, errors = self._pruned.count, self._pruned.rel_l2, self.errors
        self._fail_if(
            self._zeros < count,
            f"has {self._zeros:,} zeros; {count:,} of its elements are said to be pruned",
        )
        if not compared:
            return
        lost = max(self._changed, self._large)
        self._fail_if(lost > count, f"lost {lost:,} elements; {count:,} are said to be pruned")
        cost = (share * errors.norm) ** 2
        if self._pruned.repaired and not self._lossless:
            most = share + (1 + share) * self._bound.get("max_rel_l2", math.inf)
            self._fail_if(
                errors.rel_l2 > most * (1 + _ROUNDING),
                f"has rel_l2 {errors.rel_l2:.6g}, at most {most:.6g} is promised",
            )
            return
        if not self._lossless:
            self._fail_if(
                cost > self._zeroed.x_squared * (1 + _ROUNDING),
                f"lost less by pruning than {share:.6g} of its norm",
            )
            self._check_kept(cost)
            return
        squared = errors.squared_error
        found = math.sqrt(squared) / (errors.norm or 1.0)
        self._fail_if(
            abs(squared - cost) > _ROUNDING * max(squared, cost),
            f"lost {found:.6g} of its norm by pruning, and not {share:.6g} "
            f"({abs(found - share):.1g} off)",
        )

    def _check_kept(self, cost: float) -> None:
        """Check the bounds of the kept weights, relative to their norm."""
        kept, where = self._kept.max_abs, "at weights that were kept"
        most = self._bound.get("max_abs_error", math.inf)
        self._fail_if(kept > most, f"has max_abs_error {kept:.6g} {where}, {most:.6g} is promised")
        most = self._bound.get("max_rel_l2", math.inf)
        squared = self._kept.squared_error + max(self._zeroed.x_squared - cost, 0.0)
        left = max(self.errors.x_squared - cost, 0.0)
        rel_l2 = math.sqrt(squared / left) if left else math.inf
        self._fail_if(
            squared > most**2 * left + _ROUNDING * self._zeroed.x_squared,
            f"has max_rel_l2 {rel_l2:.6g} {where}, {most:.6g} is promised",
        )

    def _fail_if(self, wrong: bool, text: str) -> None:
        if wrong:
            raise VerificationError(text)
