"""Read the tensors of a stored checkpoint pruned.

Scores are computed run by run from the mapped file, and a mask when its tensor is read, so nothing
of the size of the model is held.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tensorcomp._formatting import shown
from tensorcomp.checkpoints.base import Checkpoint, SourceTemplate
from tensorcomp.container.records import PruningRecord
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.errors import PruningError
from tensorcomp.metrics.distortion import ErrorSums, measure
from tensorcomp.selection.checks import pruned

if TYPE_CHECKING:
    from tensorcomp.planning.moments import Moment
    from tensorcomp.selection.select import Selection

_LEAST, _MOST = 1e-280, 1e280  # sums of squares that float64 holds with all their digits


class PrunedTensor(NamedTuple):
    """A tensor's bytes before and after pruning, flat uint8.

    It is +0.0 where it was pruned.
    """

    data: np.ndarray
    original: np.ndarray
    record: PruningRecord
    cost: ErrorSums  # of the original and what is left of it


class PrunedCheckpoint(Checkpoint):
    """A source whose selected tensors are read as they are after pruning.

    Parameters
    ----------
    original : Checkpoint
        Must stay open.
    selection : Selection
    score : str
        The score's text, for the record.
    keys : mapping of str to str
        The selected tensors, and under which name each is in the selection.
    repairs : mapping of str to Moment, optional
        By which the weights of tensors that are kept make up for those that are pruned.

    Attributes
    ----------
    unpruned : dict of str to str
        Tensors that were asked for and are left as they are, and why.
    """

    def __init__(
        self,
        original: Checkpoint,
        selection: Selection,
        score: str,
        keys: Mapping[str, str],
        repairs: Mapping[str, Moment] = MappingProxyType({}),
    ) -> None:
        self.original = original
        self.tensors = original.tensors
        self.aliases, self.hidden = original.aliases, original.hidden
        self.nbytes = original.nbytes
        self._selection = selection
        self._score = score
        self._repairs = repairs
        self._keys = {name: key for name, key in keys.items() if key in selection.sizes}
        why = selection.skipped
        self.unpruned = {name: why[key] for name, key in keys.items() if key in why}
        self._infos = {info.name: info for info in self.tensors if info.name in self._keys}

    def template(self) -> SourceTemplate:
        """Return what rebuilds the file, as of the original."""
        return self.original.template()

    def read(self, name: str) -> np.ndarray:
        """Return a tensor's bytes after pruning, flat uint8."""
        tensor = self.prune(name)
        return self.original.read(name) if tensor is None else tensor.data

    def planned(self) -> dict[str, PruningRecord]:
        """Return the records of the selected tensors without their cost."""
        return {name: self._record(name, 0.0) for name in self._keys}

    def _record(self, name: str, rel_l2: float) -> PruningRecord:
        unit, count = str(self._selection.granularity), self._selection.pruned[self._keys[name]]
        return PruningRecord(self._score, unit, count, rel_l2, name in self._repairs)

    def is_selected(self, name: str) -> bool:
        """Return whether a tensor is pruned, even if it happens to lose nothing."""
        return name in self._keys

    def prune(self, name: str) -> PrunedTensor | None:
        """Return a tensor after pruning; None if it is not selected."""
        key = self._keys.get(name)
        if key is None:
            return None
        info, original = self._infos[name], self.original.read(name)
        dtype = numpy_dtype(info.dtype)
        assert dtype is not None
        weights = original.view(dtype)
        mask = self._selection.mask(key)
        left = pruned(weights, mask.reshape(-1))
        cost = measure(weights, left)
        if cost.equal_nonfinite or cost.unequal_nonfinite:
            raise PruningError(
                f"tensor {shown(name)} holds NaN or infinity; leave it out by 'where', or mend it"
            )
        if cost.x_max and not _LEAST < cost.x_squared < _MOST:
            raise PruningError(
                f"tensor {shown(name)}: squares of its weights overflow; leave it out by 'where'"
            )
        if name in self._repairs:
            from tensorcomp.selection.stored.repair import repaired  # only now

            left = repaired(weights.reshape(mask.shape), mask, self._repairs[name]).reshape(-1)
            cost = measure(weights, left)
        record = self._record(name, cost.rel_l2)
        return PrunedTensor(left.view(np.uint8), original, record, cost)
