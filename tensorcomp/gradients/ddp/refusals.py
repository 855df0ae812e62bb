"""Refuse models and optimizers that cannot work with compression."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Compressor
from tensorcomp.gradients.wrappers.base import chain, leaf_of
from tensorcomp.gradients.wrappers.momentum import MomentumCorrection, check_optimizer

_STRONG = 0.01  # the part of a gradient below which Adam's second moments are too uncertain
_LARGE = 1 << 20
PYTHON_REDUCER = (
    "the compiled python_reducer gives single gradients to communication hooks and ignores what "
    'they return; set torch._dynamo.config.optimize_ddp = "ddp_optimizer"'
)


def check_model(model: Any) -> None:
    """Refuse a model whose gradients a communication hook cannot compress."""
    if not isinstance(model, DistributedDataParallel):
        raise GradientError(
            f"gradients of a DistributedDataParallel model are compressed; got "
            f"{type(model).__name__}; wrap the model, or use compress_fsdp for fully sharded ones"
        )
    if model.mixed_precision is not None:
        raise GradientError(
            "DistributedDataParallel(mixed_precision=…) takes the only communication hook for "
            "itself; use torch.autocast instead"
        )
    if getattr(model, "_use_python_reducer", False):
        raise GradientError(PYTHON_REDUCER)
    hooks = getattr(model, "_comm_hooks", ())
    if hooks:
        name = getattr(hooks[0][0], "__qualname__", "one")
        raise GradientError(
            f"the model has a communication hook already ({name}), and DistributedDataParallel "
            "takes one only; wrap the module anew to change it"
        )


def check_training(compressor: Compressor, optimizer: torch.optim.Optimizer | None) -> None:
    """Refuse an optimizer that breaks a compressor; warn of a poor match.

    Momentum must not be both corrected and the optimizer's; an optimizer that divides by second
    moments should not be given few elements of each gradient.
    """
    if optimizer is None:
        return
    if any(isinstance(one, MomentumCorrection) for one in chain(compressor)):
        check_optimizer(optimizer)
    ratio = leaf_of(compressor).kept_part(_LARGE)
    divides = any("betas" in group for group in optimizer.param_groups)
    if divides and ratio is not None and ratio < _STRONG:
        warnings.warn(
            f"{type(optimizer).__name__} estimates second moments, which {ratio:.2%} of a gradient "
            "does not determine; keep 1 % or more after a dense warm-up of 15 % of all steps, or "
            "use int8 or int4",
            stacklevel=3,
        )


def refuse_unsynchronized_start(model: DistributedDataParallel) -> Callable[[], None]:
    """Refuse a static graph whose first backward pass is in ``no_sync``.

    What is returned ends the watch; it is called once gradients have been synchronized.
    """
    if not model.static_graph:
        return lambda: None

    def check(module: Any, _: Any) -> None:
        if torch.is_grad_enabled() and not module.require_backward_grad_sync:
            raise GradientError(
                "with static_graph=True the first backward pass cannot be inside no_sync() (an "
                "internal assertion of torch fails); synchronize the first step, or leave "
                "static_graph out"
            )

    return model.register_forward_pre_hook(check).remove
