"""Who looks on while buckets are reduced: metrics, checks of ranks, measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from tensorcomp.gradients.base import StepInfo
from tensorcomp.gradients.ddp.coding_groups import Layout, UnitWork


@dataclass
class Step:
    """A step of training that is under way.

    Parameters
    ----------
    info : StepInfo
    scale : float
        What gradients are multiplied by on their way here (`torch.amp.GradScaler`).
    flagged : bool
        Whether some rank had a value that is not finite.
    works : list of UnitWork
        What was done so far; none where gradients are sent as they are.
    sent : set of str
        The parameters whose gradients were sent as a whole, or compressed; known at the end.
    buckets : int
        Buckets so far.
    watched : bool
        Whether some attendant has to see the gradients.
    """

    info: StepInfo = field(default_factory=StepInfo)
    scale: float = 1.0
    flagged: bool = False
    works: list[UnitWork] = field(default_factory=list)
    sent: set[str] = field(default_factory=set)
    buckets: int = 0
    watched: bool = False


class Attendant:
    """Looks on; what it does between ranks, it does on all of them alike."""

    def wants(self, step: Step) -> bool:
        """Return whether it has to see the gradients of a step that begins."""
        return False

    def loaded(self, step: Step, layout: Layout, values: np.ndarray) -> None:
        """See a bucket's gradients (n,), before they are compressed.

        If some attendant wants to, and in any case where a value here is not finite.
        """

    def reduced(
        self, step: Step, layout: Layout, works: Sequence[UnitWork], buffer: torch.Tensor
    ) -> None:
        """See a bucket that is done.

        Parameters
        ----------
        step : Step
        layout : Layout
        works : sequence of UnitWork
            None where some rank had a value that is not finite.
        buffer : torch.Tensor
            (n,) the means, as the model gets them.
        """

    def ended(self, step: Step) -> None:
        """See a step that is done; states have been committed, or dropped if it is flagged."""

    def passed(self, step: Step) -> None:
        """See the begin of a step whose gradients are averaged as they are, without any work."""
