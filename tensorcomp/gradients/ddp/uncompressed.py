"""Average gradients as they are, where nothing is compressed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Self

import torch
import torch.distributed as dist

from tensorcomp.gradients.ddp.roll_call import LostRanksError, RollCall


class Pausable:
    """Leave gradients uncompressed for a while; a mixin of context managers."""

    _paused = False

    def __enter__(self) -> Self:
        return self

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Average gradients uncompressed inside; no step counts, no state changes.

        For backward passes whose gradients of this model are thrown away, as a discriminator's are
        in its generator's step: compressed, they would take residuals with them. All ranks pause
        for the same passes. Inside the model's ``no_sync()`` nothing is sent at all.
        """
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before


def average(
    buffer: torch.Tensor, group: dist.ProcessGroup, roll_call: RollCall
) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket uncompressed, as DistributedDataParallel does.

    Parameters
    ----------
    buffer : torch.Tensor
        Gets the mean.
    group : torch.distributed.ProcessGroup
    roll_call : RollCall
        Names the ranks that are lost if it fails.
    """
    buffer.mul_(1.0 / dist.get_world_size(group))
    work = dist.all_reduce(buffer, group=group, async_op=True)

    def averaged(done: torch.futures.Future[Any]) -> torch.Tensor:
        try:
            done.wait()  # the value's shape differs by backend
        except RuntimeError as error:
            raise LostRanksError(roll_call.missing(str(error))) from error
        return buffer

    future: torch.futures.Future[torch.Tensor] = work.get_future().then(averaged)
    return future
