"""Apply masks before a model runs or is saved, and after it was loaded.

The masks stand in the model's hooks alone, and find weights by their names each time. So a copy of
the model, pickled or not, takes masks of its own along, and weights that are replaced are found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from tensorcomp.errors import PruningError

_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes


class MaskedParameter:
    """The mask of a parameter, a byte per weight.

    A second mask, as large as the weight, clears elements by their bits.
    """

    def __init__(self, kept: torch.Tensor) -> None:
        self.kept = kept
        self._bits: torch.Tensor | None = None

    def clear(self, tensor: torch.Tensor) -> None:
        """Set masked elements of a tensor to +0.0, NaN included."""
        if self.kept.device != tensor.device:
            self.kept = self.kept.to(tensor.device)
        if tensor.requires_grad:
            tensor.masked_fill_(~self.kept, 0)
        else:  # by its bits, which takes a tenth of the time and is as exact
            words = _WORDS[tensor.element_size()]
            bits = self._bits
            if bits is None or bits.dtype != words or bits.device != tensor.device:
                bits = self._bits = self.kept.to(words).neg_()  # all ones where a weight is kept
            tensor.view(words).bitwise_and_(bits)

    def clear_gradient(self, parameter: torch.Tensor) -> None:
        """Set masked elements of a parameter's gradient to zero; a hook."""
        gradient = parameter.grad
        if gradient is None:
            return
        if not gradient.is_sparse:
            self.clear(gradient)
            return
        gradient = gradient.coalesce()
        found = self.kept.to(gradient.device)[tuple(gradient.indices())]
        gradient.values().masked_fill_(~found, 0)
        parameter.grad = gradient


class ModelMasks:
    """The masks of a model, attached to its hooks; true where a weight is kept."""

    def __init__(self, kept: Mapping[str, torch.Tensor]) -> None:
        self._places = {name: MaskedParameter(tensor) for name, tensor in kept.items()}
        self._watched: dict[str, tuple[nn.Parameter, Any]] = {}
        self._optimizer_handles: list[Any] = []

    @staticmethod
    def of(module: nn.Module) -> ModelMasks | None:
        """Return the masks that are attached to a module's hooks, if any."""
        for hook in module._forward_pre_hooks.values():
            owner = getattr(hook, "__self__", None)
            if isinstance(owner, ModelMasks):
                return owner
        return None

    @staticmethod
    def watches(parameter: nn.Parameter) -> bool:
        """Return whether the gradients of a parameter are masked."""
        hooks = getattr(parameter, "_post_accumulate_grad_hooks", None) or {}
        return any(
            isinstance(getattr(hook, "__self__", None), MaskedParameter) for hook in hooks.values()
        )

    def attach(self, module: nn.Module) -> None:
        """Register the hooks on a module, and mask its weights."""
        module.register_forward_pre_hook(self.hold_weights, prepend=True)
        module.register_state_dict_pre_hook(self.hold_weights)  # type: ignore[no-untyped-call]
        module.register_load_state_dict_post_hook(self.hold_weights)  # type: ignore[no-untyped-call]
        self.hold_weights(module)

    def follow(self, module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Mask gradients before, and weights after, each step of an optimizer."""
        self._optimizer_handles = [
            optimizer.register_step_pre_hook(lambda *_: self.hold_gradients(module)),
            optimizer.register_step_post_hook(lambda *_: self.hold_weights(module)),
        ]

    def detach(self, module: nn.Module) -> None:
        """Remove all hooks; the weights stay as they are."""
        for hooks in (
            module._forward_pre_hooks,
            module._state_dict_pre_hooks,
            module._load_state_dict_post_hooks,
        ):
            for key, hook in list(hooks.items()):
                if getattr(hook, "__self__", None) is self:
                    del hooks[key]
        for handle in (*self._optimizer_handles, *(pair[1] for pair in self._watched.values())):
            handle.remove()
        self._optimizer_handles = []
        self._watched = {}

    def hold_weights(self, module: nn.Module, *_: Any) -> None:
        """Set masked weights to zero, and watch their gradients; a hook."""
        for name, parameter in self._parameters(module):
            # Through `data`: a pass that autograd has yet to go back through must not take this
            # for a change, and where weights are held already it is none.
            self._places[name].clear(parameter.data)
            self._watch(name, parameter)

    def hold_gradients(self, module: nn.Module) -> None:
        """Set masked elements of all gradients to zero."""
        with torch.no_grad():
            for name, parameter in self._parameters(module):
                self._places[name].clear_gradient(parameter)

    def _parameters(self, module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the masked parameters as they are now."""
        if getattr(module, "_is_replica", False):
            return  # DataParallel's copies for one pass, made of weights that are held
        for name, places in self._places.items():
            parameter = find_parameter(module, name)
            if parameter is None or parameter.shape != places.kept.shape:
                now = "gone" if parameter is None else f"of shape {list(parameter.shape)}"
                raise PruningError(
                    f"{name!r} is held, of shape {list(places.kept.shape)}, but now it is {now}; "
                    "release the model first"
                )
            # A tensor that functional_call puts there for one pass is its caller's.
            if isinstance(parameter, nn.Parameter):
                yield name, parameter

    def _watch(self, name: str, parameter: nn.Parameter) -> None:
        watched, handle = self._watched.get(name, (None, None))
        if watched is parameter or not parameter.requires_grad:
            return
        if handle is not None:
            handle.remove()
        handle = parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
            self._places[name].clear_gradient
        )
        self._watched[name] = (parameter, handle)

    def __getstate__(self) -> dict[str, torch.Tensor]:
        # Hooks on parameters and optimizers do not survive copying; the masks do.
        return {name: places.kept for name, places in self._places.items()}

    def __setstate__(self, state: dict[str, torch.Tensor]) -> None:
        self.__init__(state)  # type: ignore[misc]


def find_parameter(module: nn.Module, name: str) -> torch.Tensor | None:
    """Find the parameter of a module under any of its names."""
    *path, last = name.split(".")
    for part in path:
        child = module._modules.get(part)
        if child is None:
            return None
        module = child
    return module._parameters.get(last)
