"""Hold masks while a model trains: what is pruned stays exactly zero."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tensorcomp.calibration.masking import Masks, kept_places
from tensorcomp.calibration.targets import unwrapped
from tensorcomp.errors import PruningError
from tensorcomp.pruning.masked_parameter import ModelMasks


class MaskHooks:
    """Hooks that keep masks on a model and its optimizer; made by `hold`.

    In a ``with`` block, the masks are let go at its end. A copy of (model, optimizer, hold) made in
    one go, by `copy.deepcopy` or pickled, is a hold on the copied model and optimizer.
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, masks: ModelMasks
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._masks: ModelMasks | None = masks
        masks.follow(model, optimizer)

    def release(self) -> None:
        """Remove all hooks; the weights stay as they are."""
        if self._masks is not None:
            self._masks.detach(self._model)
        self._masks = None

    def __enter__(self) -> MaskHooks:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._masks is not None:
            self._masks.follow(self._model, self._optimizer)


def hold(model: nn.Module, optimizer: torch.optim.Optimizer, masks: Masks) -> MaskHooks:
    """Set pruned weights to zero, and keep them there while the model trains.

    Gradients are masked as they are accumulated, so that clipping by their norm does not count
    what is pruned: training equals, bit for bit, that of a network whose weights are w ⊙ mask.
    After each step of the optimizer the weights are masked again, whatever momentum, weight decay
    or a gradient reduced among processes did to them. Before the model runs or gives its state
    dict, and after it has loaded one, they are masked too, for what happens without this
    optimizer: manual edits, and copies of the model, which hold the same masks until `release` is
    called on them. The state dict gains no entry.

    Parameters
    ----------
    model : torch.nn.Module
        Alone or in DistributedDataParallel, DataParallel or `torch.compile`, wrapped before or
        after.
    optimizer : torch.optim.Optimizer
        Which trains the model; of any kind.
    masks : mapping of str to numpy.ndarray or torch.Tensor
        By the names of ``model.named_parameters()``, without the ``module.`` of wrappers; bool, of
        the parameters' shapes, true where a weight stays. A tied weight may be given by any of its
        names.

    Returns
    -------
    MaskHooks
        Whose `release`, or the end of a ``with`` block, lets go without a trace.

    Raises
    ------
    PruningError
        If there are no masks, a name is unknown, a mask is not bool or of another shape than its
        parameter, names of one tied weight have unlike masks, the model is held already, or the
        optimizer trains none of the masked weights; nothing is changed then.

    Notes
    -----
    What `torch.func.functional_call` is given in place of parameters is not masked. Optimizer state
    of pruned weights is left as it is. A model that is pickled whole takes its masks along, and
    needs tensorcomp to be read.

    References
    ----------
    The parametrisation w ⊙ mask: Zhu & Gupta 2017, "To prune, or not to prune".

    Examples
    --------
    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    >>> with hold(model, optimizer, {"weight": torch.tensor([[True, False]])}):
    ...     _ = model(torch.ones(1, 2)).sum().backward()
    ...     _ = optimizer.step()
    >>> model.weight[0, 1].item()
    0.0
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise PruningError(f"expected a torch optimizer, got a {type(optimizer).__name__}")
    inner = unwrapped(model)
    if any(ModelMasks.of(module) is not None for module in inner.modules()):
        raise PruningError("the model is held already; release it first")
    if not masks:
        raise PruningError("there are no masks to hold; select some weights first")
    kept = {name: mask.clone() for name, mask in kept_places(inner, masks).items()}
    for name in kept:
        dtype = inner.get_parameter(name).dtype
        if not dtype.is_floating_point:
            raise PruningError(f"parameter {name!r} holds {dtype}; only floats can be masked")
    if held := [name for name in kept if ModelMasks.watches(inner.get_parameter(name))]:
        raise PruningError(f"{held[0]!r} is held already, as part of another model; release that")
    trained = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    if not any(id(inner.get_parameter(name)) in trained for name in kept):
        raise PruningError(
            "the optimizer trains none of the masked weights; make it from this model's parameters"
        )
    attached = ModelMasks(kept)
    attached.attach(inner)
    return MaskHooks(inner, optimizer, attached)


def release(model: nn.Module) -> None:
    """Remove the mask hooks of a model, or of a copy of one.

    Parameters
    ----------
    model : torch.nn.Module

    Raises
    ------
    PruningError
        If it is not held.
    """
    inner = unwrapped(model)
    attached = ModelMasks.of(inner)
    if attached is None:
        raise PruningError(f"this {type(inner).__name__} holds no masks; nothing to release")
    attached.detach(inner)
