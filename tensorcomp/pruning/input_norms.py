"""Measure ‖X‖₂ of each input feature of linear and convolutional layers."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

_Conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class InputNorms:
    """Sums of squares of inputs, by hooks on layers while a block runs.

    Inputs count where a `torch.nn.Linear` or ``Conv1d`` to ``Conv3d`` has one of the weights and is
    itself called; those of all layers that share a weight add up.

    Attributes
    ----------
    layers : list of tuple
        The layers whose inputs count, each with the name of its weight.
    sums : dict of str to torch.Tensor
        The squares so far, of the tensors whose layers were called: float32, float64 for float64
        weights; of one filter's shape, or of as many as the convolution has groups.
    """

    def __init__(self, model: nn.Module, weights: Mapping[str, torch.Tensor]) -> None:
        self.sums: dict[str, torch.Tensor] = {}
        self._weights = weights
        names = {id(weight): name for name, weight in weights.items()}
        layers = [module for module in model.modules() if isinstance(module, (nn.Linear, *_Conv))]
        own = [names.get(id(layer._parameters.get("weight"))) for layer in layers]
        self.layers = [(layer, name) for layer, name in zip(layers, own, strict=True) if name]

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Count inputs in this block only, not where layers run again."""
        hooks = [
            module.register_forward_pre_hook(partial(self._listen, name), with_kwargs=True)
            for module, name in self.layers
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def norms(self) -> dict[str, torch.Tensor]:
        """Return ‖X‖₂, of the shape of one output's weights, or of all if grouped.

        Layers that no sample reaches have none.
        """
        found = {}
        for name, total in self.sums.items():
            weight = self._weights[name]
            if total.numel() and not total.any():
                continue
            if total.ndim == weight.ndim:  # group, channel of the group, place in the kernel
                total = total.repeat_interleave(weight.shape[0] // total.shape[0], dim=0)
            found[name] = total.sqrt()
        return found

    def _listen(
        self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        inputs = args[0] if args else kwargs.get("input")
        # The layer itself says what is wrong with any other input.
        if torch.is_tensor(inputs) and inputs.is_floating_point():
            dtype = torch.float64 if module.weight.dtype == torch.float64 else torch.float32
            squares = input_squares(module, inputs.detach(), dtype)
            if name in self.sums:
                squares = squares.to(self.sums[name].device) + self.sums[name]
            self.sums[name] = squares


def input_squares(module: nn.Module, inputs: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Sum the squares of each input feature over samples and positions.

    The sums have the dtype given.

    The shape is ``(features,)`` for a linear layer; for convolutions ``(channels, *kernel)``, or
    ``(groups, channels of a group, *kernel)`` if there are several groups.
    """
    if isinstance(module, nn.Linear):
        rows = inputs.reshape(inputs.shape[:-1].numel(), inputs.shape[-1])
        norms: torch.Tensor = torch.linalg.vector_norm(rows, dim=0, dtype=dtype)
        return norms.square()
    assert isinstance(module, _Conv)
    kernel = module.kernel_size
    if inputs.ndim == len(kernel) + 1:
        inputs = inputs.unsqueeze(0)
    # Samples first: the rest then costs as much as one of them, and nothing is unfolded.
    total = torch.linalg.vector_norm(inputs, dim=0, keepdim=True, dtype=dtype).square()
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    total = F.pad(total, _pads(module), mode=mode)[0]
    steps = []
    for size, length, stride, dilation in zip(
        kernel, total.shape[1:], module.stride, module.dilation, strict=True
    ):
        outputs = (length - dilation * (size - 1) - 1) // stride + 1
        starts = [dilation * place for place in range(size)]
        steps.append([slice(at, at + stride * (outputs - 1) + 1, stride) for at in starts])
    axes = tuple(range(1, len(kernel) + 1))
    sums = [total[(slice(None), *place)].sum(axes) for place in itertools.product(*steps)]
    squares = torch.stack(sums, dim=1).reshape(-1, *kernel)
    if module.groups > 1:
        squares = squares.reshape(module.groups, -1, *kernel)
    return squares


def _pads(module: nn.Conv1d | nn.Conv2d | nn.Conv3d) -> list[int]:
    """Return the padding of each side, the last axis first, as `F.pad` takes it."""
    if isinstance(module.padding, str):
        pairs = zip(module.dilation, module.kernel_size, strict=True)
        totals = [dilation * (size - 1) for dilation, size in pairs]
        same = module.padding == "same"
        sides = [(total // 2, total - total // 2) if same else (0, 0) for total in totals]
    else:
        sides = [(side, side) for side in module.padding]
    return [side for pair in reversed(sides) for side in pair]
