"""Measures a model on data: the statistics by which weights are scored, by streaming sums."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tensorcomp.errors import PruningError
from tensorcomp.planning.statistics import STATISTICS, Statistics
from tensorcomp.pruning.batches import Batches, Told
from tensorcomp.pruning.derivatives import (
    Tensors,
    gradients,
    hessian_product,
    non_finite,
    require_loss,
    unit_factor,
    widened,
)
from tensorcomp.pruning.gradient_sums import (
    GradientHistory,
    GradientSums,
    kinds_for,
    statistics_of,
)
from tensorcomp.pruning.input_norms import InputNorms
from tensorcomp.pruning.losses import (
    Loss,
    cross_entropy,
    example_of,
    inputs_and_targets,
    run,
    tempered,
)
from tensorcomp.pruning.masking import mask_parameters
from tensorcomp.pruning.preserve_state import preserve_state
from tensorcomp.pruning.signal_flow import synaptic_flow
from tensorcomp.pruning.targets import Where, prunable_parameters, require_values, unwrapped

__all__ = ["CALIBRATED", "GradientHistory", "calibrate"]

CALIBRATED = ("snip", "taylor", "gradient", "fisher", "grasp", "input_norm")


def calibrate(
    model: nn.Module,
    data: Iterable[Any],
    *,
    statistics: Sequence[str] = CALIBRATED,
    loss: Loss | None = None,
    batches: int | None = None,
    where: Where = None,
    temperature: float = 200.0,
    decay: float | None = None,
    train_mode: bool = False,
    masks: Mapping[str, np.ndarray] | None = None,
    progress: Told | None = None,
) -> Statistics:
    """Run a model on data and measure the statistics of its weights; it is left as it was.

    Minibatches count equally, whatever their sizes. Sums are float32, float64 for float64 weights,
    on the weights' devices. A statistic that a tensor cannot have, such as ``input_norm`` for a
    weight that is used outside `torch.nn.Linear` and ``Conv1d`` to ``Conv3d``, is left out for it.

    Parameters
    ----------
    model : torch.nn.Module
        Not moved; minibatches go to the device of its first parameter.
    data : iterable
        Minibatches ``(inputs, targets)``, or mappings given to a model that returns its own loss;
        of any kind with `loss`. For ``input_norm`` alone inputs are enough. ``grasp`` takes two
        passes; the minibatches of an iterator that cannot be started again are then kept in memory.
    statistics : sequence of str
        Of those in `statistics.STATISTICS`.
    loss : callable, optional
        Called with the model, out of its wrappers, and a minibatch, returns a scalar; by default
        the cross-entropy, see `losses.cross_entropy`. For ``grasp`` it is called once more while
        the model returns its logits, a tensor or an attribute ``logits``, divided by the
        temperature.
    batches : int, optional
        Take the first so many; all by default.
    where : optional
        Which parameters, see `prunable_parameters`.
    temperature : float
        Divides the logits for ``grasp``; 1 for losses that are not made of logits.
    decay : float, optional
        In [0, 1): ``gradient`` is the exponential running mean with this weight of the past,
        corrected for its start at zero; by default the plain mean.
    train_mode : bool
        Run the model in training mode; by default batch normalisation and dropout infer.
    masks : mapping of str to numpy.ndarray, optional
        Bool, by parameter: the model is measured with the others of its weights set to zero.
    progress : callable, optional
        Told how many minibatches are done, and how many there will be, if that is known.

    Returns
    -------
    Statistics

    Raises
    ------
    PruningError
        If there is nothing to measure, the data are too few, a loss, gradient or input is not
        finite, the loss does not depend on a tensor, or an argument is not understood.

    References
    ----------
    See the scores: `Snip`, `Taylor`, `Gradient`, `Grasp`, `OptimalBrainDamage`, `Wanda`,
    `SynapticFlow`. The product Hg by double differentiation: Pearlmutter 1994, "Fast exact
    multiplication by the Hessian".
    """
    asked = _asked(statistics)
    if not 0 < temperature < math.inf:
        raise PruningError(f"temperature is positive; got {temperature}")
    model = unwrapped(model)
    weights = prunable_parameters(model, where)
    require_values(model)
    if asked == {"synflow"}:
        batches = 1  # of which it takes the shape
    with contextlib.ExitStack() as stack:
        stack.enter_context(preserve_state(model))
        stack.enter_context(torch.inference_mode(mode=False))
        model.train(train_mode)
        for weight in weights.values():
            weight.requires_grad_()
        device = next(model.parameters()).device
        minibatches = Batches(data, batches, device, again="grasp" in asked, told=progress)
        if masks is not None:
            mask_parameters(model, masks)
        norms = stack.enter_context(InputNorms(model, weights if "input_norm" in asked else {}))
        measuring = _Measuring(model, weights, asked, loss, temperature, decay, norms)
        arrays = measuring.measure(minibatches)
        if "synflow" in asked:
            flow = synaptic_flow(model, measuring.example, list(weights))
            arrays["synflow"] = {name: torch.from_numpy(array) for name, array in flow.items()}
    found = {
        statistic: {name: array.cpu().numpy() for name, array in sorted(arrays[statistic].items())}
        for statistic in STATISTICS
        if statistic in asked
    }
    return Statistics(found, minibatches.count, minibatches.samples)


def _asked(statistics: Sequence[str]) -> set[str]:
    asked = {statistics} if isinstance(statistics, str) else set(statistics)
    if not asked or not asked <= set(STATISTICS):
        wrong = ", ".join(sorted(asked - set(STATISTICS))) or "none"
        raise PruningError(f"statistics are some of {', '.join(STATISTICS)}; got {wrong}")
    return asked


class _Measuring:
    """One model's statistics in the making; `measure` runs through the data."""

    def __init__(
        self,
        model: nn.Module,
        weights: Mapping[str, nn.Parameter],
        asked: set[str],
        loss: Loss | None,
        temperature: float,
        decay: float | None,
        norms: InputNorms,
    ) -> None:
        self._model = model
        self._weights = weights
        self._asked = asked
        self._loss = loss
        self._temperature = temperature
        self._norms = norms
        self._sums = GradientSums(weights, kinds_for(asked, decay), decay)
        self._tempered = GradientSums(weights, {"signed"} if "grasp" in asked else set())
        self.example: Any = None

    def measure(self, batches: Batches) -> dict[str, Tensors]:
        """Return the asked statistics, but ``synflow``."""
        for number, batch in batches:
            if self.example is None and "synflow" in self._asked:
                self.example = example_of(batch)
            self._measure_batch(batch, f"minibatch {number}")
        arrays = statistics_of(self._sums, self._weights, self._asked)
        if "grasp" in self._asked:
            self._tempered.require_all()
            arrays["grasp"] = self._grasp(batches, self._tempered.take_mean("signed"))
        if "input_norm" in self._asked:
            arrays["input_norm"] = self._norms.norms()
            if not arrays["input_norm"] and self._asked == {"input_norm"}:
                raise PruningError(
                    "input_norm: none of the tensors is the weight of a Linear, Conv1d, Conv2d or "
                    "Conv3d layer that the model calls"
                )
        return arrays

    def _measure_batch(self, batch: Any, place: str) -> None:
        plain, divided = bool(self._sums.kinds), bool(self._tempered.kinds)
        if plain:
            with self._norms.listening():
                loss = self._loss_of(batch, place)
            self._sums.add(gradients(loss, self._weights, place))
        if divided:  # the same inputs again
            with contextlib.nullcontext() if plain else self._norms.listening():
                loss = self._tempered_loss(batch, place)
            self._tempered.add(gradients(loss, self._weights, place))
        if not (plain or divided) and "input_norm" in self._asked:
            with self._norms.listening(), torch.no_grad():
                self._run(batch)
        bad = non_finite(self._norms.sums)
        if bad:
            raise PruningError(f"the input of {bad[0]!r} is not finite in {place}")

    def _grasp(self, batches: Batches, gradient: Tensors) -> Tensors:
        """Return w ⊙ Hg, by a second pass."""
        factor = unit_factor(gradient)
        for part in gradient.values():
            part.mul_(factor)
        products = GradientSums(self._weights, {"signed"})
        # Other implementations of attention have no second derivative.
        with sdpa_kernel(SDPBackend.MATH):
            for number, batch in batches:
                place = f"minibatch {number}"
                loss = self._tempered_loss(batch, place)
                products.add(hessian_product(loss, self._weights, gradient, place))
        return {
            name: product.div_(factor).mul_(widened(self._weights[name].detach()))
            for name, product in products.take_mean("signed").items()
        }

    def _loss_of(self, batch: Any, place: str) -> torch.Tensor:
        with torch.enable_grad():
            return require_loss((self._loss or cross_entropy)(self._model, batch), place)

    def _tempered_loss(self, batch: Any, place: str) -> torch.Tensor:
        with tempered(self._model, self._temperature):
            return self._loss_of(batch, place)

    def _run(self, batch: Any) -> None:
        """Run the model where nothing but its inputs counts."""
        if self._loss is not None:
            self._loss(self._model, batch)
        else:
            run(self._model, inputs_and_targets(batch)[0])
