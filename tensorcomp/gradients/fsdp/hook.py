"""Compress what fully sharded modules (FSDP2) send to owners of shards.

Fully sharded modules reduce their gradients by a reduce-scatter: each rank owns a part of the mean,
and no other rank needs it. So one all-to-all of payloads takes its place; there is no second
compression and no answer. All ranks must use modules in the same order, as FSDP itself demands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn

from tensorcomp._names import clean_names
from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Compressor
from tensorcomp.gradients.ddp.hook import prepared
from tensorcomp.gradients.fsdp.sharded import ROOT, FsdpCompression


def compress_fsdp(
    model: nn.Module,
    compressor: Compressor | str,
    *,
    feedback: bool | Literal["auto"] = "auto",
    scaler: torch.amp.GradScaler | None = None,
    residual_dtype: Literal["float32", "bfloat16"] = "float32",
) -> FsdpCompression:
    """Compress the gradients that fully sharded modules exchange, on all ranks.

    A module's parameters are compressed as the flat vectors that FSDP sends to each owner, so that
    low rank, which needs matrices, sends them as they are. Small vectors do: wrap ``per_role(...)``
    around the compressor.

    Parameters
    ----------
    model : torch.nn.Module
        With ``fully_shard`` applied to it, to its modules, or both.
    compressor : Compressor or str
        The same on all ranks; a text as `parse_compressor` takes it.
    feedback : bool or "auto"
        Of a text: whether there is error feedback; ``"auto"`` where much is left out.
    scaler : torch.amp.GradScaler, optional
        That scales the loss: residuals are then kept in units of the unscaled gradient.
    residual_dtype : str
        ``"bfloat16"`` for half the memory of residuals. A rank keeps those of all gradients that it
        computes: as many elements as the unsharded model has.

    Returns
    -------
    FsdpCompression
        As a context manager around the training it ends all ranks where one fails, with its
        message.

    Raises
    ------
    GradientError
        If no module is fully sharded, shards are replicated (hybrid sharding), torch is too old, or
        the compressor's text is not understood.
    """
    modules = _sharded_modules(model)
    world = dist.get_world_size()
    ready = prepared(compressor, feedback=feedback, residual_dtype=residual_dtype, world=world)
    compression = FsdpCompression(ready, scaler)
    names = clean_names(modules)
    for name, module in modules.items():
        module.set_custom_reduce_scatter(_ReduceScatter(names[name] or ROOT, compression))
    model.register_forward_pre_hook(compression.settle_before_forward)
    return compression


def _sharded_modules(model: nn.Module) -> dict[str, Any]:
    try:
        from torch.distributed.fsdp import FSDPModule
        from torch.distributed.tensor import DTensor
    except ImportError:
        FSDPModule = None  # type: ignore[assignment, misc]
    if FSDPModule is None or not hasattr(FSDPModule, "set_custom_reduce_scatter"):
        raise GradientError(
            f"torch {torch.__version__} has no FSDPModule.set_custom_reduce_scatter; "
            "install torch 2.13 or newer"
        )
    modules = {
        name: module for name, module in model.named_modules() if isinstance(module, FSDPModule)
    }
    if not modules:
        raise GradientError(
            "no module of the model is fully sharded; call torch.distributed.fsdp.fully_shard first"
        )
    for name, parameter in model.named_parameters():
        if isinstance(parameter, DTensor) and any(p.is_replicate() for p in parameter.placements):
            raise GradientError(
                f"the shards of {name} are replicated; gradients of hybrid sharding cannot be "
                "compressed: give fully_shard a mesh of one dimension"
            )
    return modules


@dataclass(eq=False)
class _ReduceScatter:
    """Compress where FSDP would call a reduce-scatter."""

    name: str
    compression: FsdpCompression

    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: Any,
        op: Any,
        async_op: Any = False,
    ) -> None:
        self.compression.reduce_scatter(self.name, output_tensor, input_tensor, group, op)
