"""Sum gradients over minibatches, and make statistics of the sums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import nn

from tensorcomp.calibration.derivatives import Tensors, non_finite, widened
from tensorcomp.calibration.targets import Where, prunable_parameters
from tensorcomp.errors import PruningError
from tensorcomp.planning.statistics import Statistics

# For each statistic, which function of the gradients is summed: g, |g| or g². As |w g| is |w| |g|,
# the mean of |g| gives taylor, too.
_SUMMED = {
    "snip": "signed",
    "grasp": "signed",
    "taylor": "absolute",
    "gradient": "absolute",
    "fisher": "square",
}


class GradientSums:
    """Sums over the gradients of minibatches, and statistics of them.

    They are float32 or float64.

    Parameters
    ----------
    weights : mapping of str to torch.Tensor
    statistics : iterable of str
        Those of other kinds are left out.
    decay : float, optional
        In [0, 1): that of ``gradient``, a running mean; by default it is a plain one.
    """

    def __init__(
        self,
        weights: Mapping[str, torch.Tensor],
        statistics: Iterable[str],
        decay: float | None = None,
    ) -> None:
        if decay is not None and not 0 <= decay < 1:
            raise PruningError(f"expected decay to be at least 0 and below 1, got {decay}")
        self.count = 0
        self.kinds = {name: _SUMMED[name] for name in statistics if name in _SUMMED}
        if decay is not None and "gradient" in self.kinds:
            self.kinds["gradient"] = "running"
        self._decay = decay or 0.0
        self._sums = {
            kind: {name: torch.zeros_like(widened(weight)) for name, weight in weights.items()}
            for kind in set(self.kinds.values())
        }

    def add(self, found: Tensors) -> None:
        """Count the gradient of a minibatch; zero for the weights that are missing."""
        self.count += 1
        for total in self._sums.get("running", {}).values():
            total.mul_(self._decay)
        for name, gradient in found.items():
            for kind, sums in self._sums.items():
                if kind == "signed":
                    sums[name].add_(gradient)
                elif kind == "square":
                    sums[name].addcmul_(gradient, gradient)
                else:
                    sums[name].add_(gradient.abs())

    def unreached(self) -> tuple[str, ...]:
        """Return the weights whose gradient is zero in every minibatch.

        Raises
        ------
        PruningError
            If these are all.
        """
        names = next(iter(self._sums.values()), {})
        totals = {name: [sums[name] for sums in self._sums.values()] for name in names}
        found = tuple(name for name, some in totals.items() if not any(map(torch.any, some)))
        if found and len(found) == len(totals):
            none = f"{found[0]!r} has no gradient in any of {self.count} minibatches"
            raise PruningError(f"{none}: the loss does not depend on it; leave it out by 'where'")
        return found

    def mean(self, statistic: str) -> Tensors:
        """Return the mean over minibatches of what is summed for a statistic."""
        kind = self.kinds[statistic]
        weight: float = self.count
        if kind == "running":
            weight = (1 - self._decay**self.count) / (1 - self._decay)
        return {name: total / weight for name, total in self._sums[kind].items()}

    def statistic(self, statistic: str, weights: Mapping[str, torch.Tensor]) -> Tensors:
        """Return a statistic of first derivatives, of the weights that are reached."""
        unreached, means = self.unreached(), self.mean(statistic)
        means = {name: mean for name, mean in means.items() if name not in unreached}
        if statistic in ("snip", "taylor"):
            for name, mean in means.items():
                mean.mul_(widened(weights[name].detach())).abs_()
        return means


class GradientHistory:
    """The running mean of gradient magnitudes while a model trains.

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
        If the decay is not in [0, 1).

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
        GradientSums({}, (), decay)  # refuses a wrong decay
        self._decay = decay
        self._where = where
        self._sums: GradientSums | None = None
        self._shapes: dict[str, torch.Size] = {}

    def update(self, model: nn.Module) -> None:
        """Count the gradients of the parameters; call it after ``backward``.

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
            self._sums, self._shapes = GradientSums(weights, ("gradient",), self._decay), shapes
        if shapes != self._shapes:
            raise PruningError("the model has other parameters than at the first update")
        gradients = {name: weight.grad for name, weight in weights.items()}
        found = {name: widened(one) for name, one in gradients.items() if one is not None}
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
            If there was no update, or no parameter ever had a gradient.
        """
        if self._sums is None:
            raise PruningError("the history is empty: call update after backward")
        means = self._sums.statistic("gradient", {})
        arrays = {name: mean.cpu().numpy() for name, mean in means.items()}
        return Statistics({"gradient": arrays}, self._sums.count, unreached=self._sums.unreached())
