"""Streaming sums over the gradients of minibatches, and the statistics that they give."""

from __future__ import annotations

from collections.abc import Mapping, Set

import torch
from torch import nn

from tensorcomp.errors import PruningError
from tensorcomp.planning.statistics import Statistics
from tensorcomp.pruning.derivatives import Tensors, non_finite, widened
from tensorcomp.pruning.targets import Where, prunable_parameters


class GradientSums:
    """Sums over gradients g of minibatches, float32, or float64 for float64 weights.

    Parameters
    ----------
    weights : mapping of str to torch.Tensor
    kinds : set of str
        ``signed`` (g), ``absolute`` (|g|), ``square`` (g²), and ``running``: |g| times a power of
        `decay`, the number of minibatches since.
    decay : float, optional
        For ``running``.
    """

    def __init__(
        self, weights: Mapping[str, torch.Tensor], kinds: Set[str], decay: float | None = None
    ) -> None:
        if decay is not None and not 0 <= decay < 1:
            raise PruningError(f"decay is at least 0 and below 1; got {decay}")
        self.kinds = kinds
        self.count = 0
        self._decay = decay or 0.0
        self._unseen = dict.fromkeys(weights)
        self._sums = {
            kind: {name: _zeros(weight) for name, weight in weights.items()}
            for kind in sorted(kinds)
        }

    def add(self, found: Tensors) -> None:
        """Count the gradient of a minibatch; zero for the weights that are missing."""
        self.count += 1
        for total in self._sums.get("running", {}).values():
            total.mul_(self._decay)
        for name, gradient in found.items():
            self._unseen.pop(name, None)
            for kind, sums in self._sums.items():
                if kind == "signed":
                    sums[name].add_(gradient)
                elif kind == "square":
                    sums[name].addcmul_(gradient, gradient)
                else:
                    sums[name].add_(gradient.abs())

    def require_all(self) -> None:
        """Raise a PruningError if there is a weight that never had a gradient."""
        for name in self._unseen:
            raise PruningError(
                f"{name!r} has no gradient in any of {self.count} minibatches: the loss does not "
                "depend on it; leave it out by 'where'"
            )

    def mean(self, kind: str) -> Tensors:
        """Return the mean over minibatches."""
        weight = self._weight(kind)
        return {name: total / weight for name, total in self._sums[kind].items()}

    def take_mean(self, kind: str) -> Tensors:
        """Return the mean over minibatches in place of the sum, which is used up."""
        weight = self._weight(kind)
        return {name: total.div_(weight) for name, total in self._sums.pop(kind).items()}

    def _weight(self, kind: str) -> float:
        if kind == "running":
            return (1 - self._decay**self.count) / (1 - self._decay)
        return self.count


def _zeros(weight: torch.Tensor) -> torch.Tensor:
    dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
    return torch.zeros(weight.shape, dtype=dtype, device=weight.device)


def kinds_for(asked: Set[str], decay: float | None) -> set[str]:
    """Return which sums the asked statistics need."""
    # As |w g| is |w| |g|, the mean of |g| gives the statistic taylor, too.
    kinds = {"snip": "signed", "taylor": "absolute", "fisher": "square"}
    kinds["gradient"] = "absolute" if decay is None else "running"
    return {kind for statistic, kind in kinds.items() if statistic in asked}


def statistics_of(
    sums: GradientSums, weights: Mapping[str, torch.Tensor], asked: Set[str]
) -> dict[str, Tensors]:
    """Return those of the statistics of first derivatives that are asked for; sums are used up.

    Raises
    ------
    PruningError
        If a weight never had a gradient.
    """
    found: dict[str, Tensors] = {}
    if not sums.kinds:
        return found
    sums.require_all()
    if "signed" in sums.kinds:
        found["snip"] = sums.take_mean("signed")
        for name, mean in found["snip"].items():
            mean.mul_(widened(weights[name].detach())).abs_()
    if "square" in sums.kinds:
        found["fisher"] = sums.take_mean("square")
    if "running" in sums.kinds:
        found["gradient"] = sums.take_mean("running")
    if "absolute" in sums.kinds:
        means = sums.take_mean("absolute")
        if "taylor" in asked:
            found["taylor"] = {
                name: widened(weights[name].detach()).abs().mul_(mean)
                for name, mean in means.items()
            }
        if "gradient" in asked and "gradient" not in found:
            found["gradient"] = means
    return found


class GradientHistory:
    """The running mean of the magnitude of gradients while a model trains: a statistic for scores.

    Parameters
    ----------
    decay : float, optional
        In [0, 1): the weight of the past in an exponential mean, corrected for its start at zero;
        by default all steps count the same.
    where : optional
        Which parameters, see `prunable_parameters`.

    Raises
    ------
    PruningError
        If the decay is none.

    Examples
    --------
    >>> model = torch.nn.Linear(2, 1)
    >>> history = GradientHistory(decay=0.9)
    >>> for inputs in torch.ones(5, 8, 2):
    ...     model(inputs).mean().backward()
    ...     history.update(model)
    ...     model.zero_grad()
    >>> history.statistics().of("gradient", "weight")
    array([[1., 1.]], dtype=float32)
    """

    def __init__(self, decay: float | None = None, *, where: Where = None) -> None:
        self._decay = decay
        self._where = where
        self._sums: GradientSums | None = None
        self._shapes: dict[str, torch.Size] = {}
        GradientSums({}, set(), decay)  # refuses a wrong decay now

    def update(self, model: nn.Module) -> None:
        """Count the gradients that the parameters hold now; call it after ``backward``.

        With a gradient scaler, call its ``unscale_`` first, and leave out steps that it skips.

        Parameters
        ----------
        model : torch.nn.Module
            The same each time, or one with the same parameters.

        Raises
        ------
        PruningError
            If a gradient is not finite, or parameters are others than before; nothing is counted
            then.
        """
        weights = prunable_parameters(model, self._where)
        shapes = {name: weight.shape for name, weight in weights.items()}
        if self._sums is None:
            kinds = kinds_for({"gradient"}, self._decay)
            self._sums, self._shapes = GradientSums(weights, kinds, self._decay), shapes
        if shapes != self._shapes:
            raise PruningError("the model has other parameters than at the first update")
        found = {
            name: widened(weight.grad)
            for name, weight in weights.items()
            if weight.grad is not None
        }
        if bad := non_finite(found):
            raise PruningError(
                f"the gradient of {bad[0]!r} is not finite at update {self._sums.count + 1}"
            )
        self._sums.add(found)

    def statistics(self) -> Statistics:
        """Return the statistic ``gradient`` as it is now; updates may go on.

        Raises
        ------
        PruningError
            If there was no update, or a parameter never had a gradient.
        """
        if self._sums is None:
            raise PruningError("the history is empty: call update after backward")
        self._sums.require_all()
        (kind,) = self._sums.kinds
        means = {name: mean.cpu().numpy() for name, mean in self._sums.mean(kind).items()}
        return Statistics({"gradient": means}, batches=self._sums.count)
