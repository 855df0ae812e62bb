"""Register compression as the communication hook of a DDP model."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Literal

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Compressor
from tensorcomp.gradients.ddp.communicator import Communicator
from tensorcomp.gradients.ddp.compression import GradientCompression, Settings
from tensorcomp.gradients.ddp.refusals import check_model, check_training
from tensorcomp.gradients.text import parse_compressor
from tensorcomp.gradients.wrappers.base import map_chain
from tensorcomp.gradients.wrappers.feedback import ErrorFeedback
from tensorcomp.gradients.wrappers.momentum import for_workers
from tensorcomp.gradients.wrappers.packet_loss import PacketLoss
from tensorcomp.gradients.wrappers.phases import PhaseTracker


def compress_gradients(
    ddp_model: DistributedDataParallel,
    compressor: Compressor | str,
    *,
    feedback: bool | Literal["auto"] = "auto",
    optimizer: torch.optim.Optimizer | None = None,
    scaler: torch.amp.GradScaler | None = None,
    residual_dtype: Literal["float32", "bfloat16"] = "float32",
    phases: PhaseTracker | None = None,
    observe: int = 0,
    check_ranks: int = 0,
    packet_loss: PacketLoss | None = None,
    timeout: timedelta | float | None = None,
) -> GradientCompression:
    """Compress the gradients that a DDP model exchanges; all ranks call it.

    Gradients arrive averaged over the ranks, the same on all of them bit for bit. What
    compression leaves out is kept by parameter name and sent in later steps where the compressor
    has error feedback.

    Parameters
    ----------
    ddp_model : torch.nn.parallel.DistributedDataParallel
        Without a communication hook. Its mean is over the initial number of ranks, also where
        `Join` has some of them end earlier.
    compressor : Compressor or str
        The same on all ranks; a text as `parse_compressor` takes it, such as
        ``"topk(0.01, values=affine(8))"``.
    feedback : bool or "auto"
        Of a text: whether there is error feedback; ``"auto"`` where much is left out.
    optimizer : torch.optim.Optimizer, optional
        To be checked against the compressor.
    scaler : torch.amp.GradScaler, optional
        That scales the loss: residuals are then kept in units of the unscaled gradient. If some
        rank has a value that is not finite, all ranks get NaN, so that all scalers skip the step,
        and every residual stays as it was.
    residual_dtype : str
        ``"bfloat16"`` for half the memory of residuals.
    phases : PhaseTracker, optional
        Finds the phase of training from the metrics that are reported.
    observe : int
        Measure errors and residuals every so many steps; 0 for never. It takes some passes over
        the gradients.
    check_ranks : int
        Compare the gradients' hashes over the ranks every so many steps; 0 for never.
    packet_loss : PacketLoss, optional
        Simulated loss of chunks in reduce-scatters, for studies: nothing on the wire is lost.
    timeout : timedelta or float, optional
        Of collectives, in seconds; torch's own by default.

    Returns
    -------
    GradientCompression
        As a context manager around the training it ends all ranks where one fails, with its
        message.

    Raises
    ------
    GradientError
        If the model, the optimizer or the compressor cannot be used so, or ranks differ in their
        parameters or in the compressor.

    Examples
    --------
    >>> from tensorcomp.gradients import compress_gradients
    >>> def train(ddp_model, optimizer, batches):
    ...     with compress_gradients(ddp_model, "topk(0.01, values=affine(8))") as compression:
    ...         for inputs, targets in batches:
    ...             optimizer.zero_grad()
    ...             torch.nn.functional.mse_loss(ddp_model(inputs), targets).backward()
    ...             optimizer.step()
    ...     print(compression.summary())
    """
    check_model(ddp_model)
    world = dist.get_world_size(ddp_model.process_group)
    ready = prepared(compressor, feedback=feedback, residual_dtype=residual_dtype, world=world)
    check_training(ready, optimizer)
    seconds = timedelta(seconds=timeout) if isinstance(timeout, int | float) else timeout
    device = next(ddp_model.module.parameters()).device
    comm = Communicator(_private_group(ddp_model, seconds), device)
    given = Settings(scaler, phases or PhaseTracker(), observe, check_ranks, packet_loss)
    compression = GradientCompression(ddp_model, ready, comm, given)
    ddp_model.register_comm_hook(compression, _hook)
    return compression


def _hook(state, bucket):  # type: ignore[no-untyped-def]  # torch takes no annotation as a text
    return state.reduce(bucket)


def prepared(
    compressor: Compressor | str,
    *,
    feedback: bool | Literal["auto"],
    residual_dtype: Literal["float32", "bfloat16"],
    world: int,
) -> Compressor:
    """Return the compressor for the arguments of `compress_gradients`.

    Momentum corrections get the number of ranks as their `workers`.

    Raises
    ------
    GradientError
        If the text is not understood, or something else than a compressor is given.
    """
    if isinstance(compressor, str):
        compressor = parse_compressor(compressor, feedback=feedback)
    elif not isinstance(compressor, Compressor):
        raise GradientError(
            f'expected a compressor or its text, such as "topk(0.01)", got {compressor!r}'
        )
    if residual_dtype not in ("float32", "bfloat16"):
        raise GradientError(
            f'expected residual_dtype "float32" or "bfloat16", got {residual_dtype!r}'
        )

    def with_residuals(one: Compressor) -> Compressor:
        if isinstance(one, ErrorFeedback) and one.dtype not in ("bfloat16", residual_dtype):
            return replace(one, dtype=residual_dtype)
        return one

    return for_workers(map_chain(compressor, with_residuals), world)


def _private_group(model: DistributedDataParallel, timeout: timedelta | None) -> dist.ProcessGroup:
    ranks = dist.get_process_group_ranks(model.process_group)
    group: dist.ProcessGroup = dist.new_group(
        ranks,
        timeout=timeout,
        backend=dist.get_backend(model.process_group),
        use_local_synchronization=len(ranks) != dist.get_world_size(),
    )
    return group
