"""Measure the statistics of a model's weights on data, by streaming sums."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tensorcomp.calibration.batches import Batches, OnBatch
from tensorcomp.calibration.curvature import measure_curvature
from tensorcomp.calibration.derivatives import (
    Tensors,
    derivatives,
    require_loss,
    unit_factor,
    widened,
)
from tensorcomp.calibration.gradient_sums import GradientSums
from tensorcomp.calibration.input_norms import InputNorms
from tensorcomp.calibration.kept_groups import written
from tensorcomp.calibration.losses import (
    Loss,
    cross_entropy,
    example_of,
    inputs_and_targets,
    run,
    tempered,
)
from tensorcomp.calibration.masking import mask_parameters
from tensorcomp.calibration.preserve_state import (
    preserve_generators,
    preserve_state,
    seed_generators,
)
from tensorcomp.calibration.signal_flow import synaptic_flow
from tensorcomp.calibration.targets import Where, prunable_parameters, require_values, unwrapped
from tensorcomp.errors import PruningError
from tensorcomp.io.locations import is_remote, location
from tensorcomp.planning.statistics import CALIBRATED as CALIBRATED
from tensorcomp.planning.statistics import CURVATURE, STATISTICS, Statistics


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
    train_mode: bool | None = None,
    masks: Mapping[str, np.ndarray] | None = None,
    progress: OnBatch | None = None,
    dtype: str = "float32",
    memory: int | None = None,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
    job: str = "",
) -> Statistics:
    """Run a model on data and measure the statistics of its weights.

    Of `CURVATURE`, labels are drawn from what the model predicts (see `sampled_loss`), unless
    there is a loss, which is then taken as a mean over samples; targets are not needed. The model
    is in evaluation mode by default, and all matrices and kernels are measured, frozen ones, tied
    ones and tables among them. Positions that an ``attention_mask`` among the inputs excludes do
    not count. Statistics of what other operations than products, convolutions and lookups read are
    left out.

    The model is left as it was: weights, buffers such as the running statistics of batch
    normalisation, training mode, gradients, random number generators.

    Minibatches count equally, whatever their sizes. Sums are float32, float64 for float64 weights,
    on the weights' devices. A statistic that a tensor cannot have, such as ``input_norm`` for a
    weight that is in no matrix product or convolution, is left out for it, and all for
    tensors that no sample reaches, such as experts that are never routed to.

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
    train_mode : bool, optional
        Whether dropout and batch normalisation act as in training (true) or as in use (false). By
        default gradients are those of the model in the mode that it is in, which is how SNIP and
        GraSP were published, and ``input_norm`` is that of the model in use. What a minibatch draws
        at random follows from the global generator of torch and the minibatch's number.
    masks : mapping of str to numpy.ndarray, optional
        Bool, by parameter: the model is measured with the others of its weights set to zero.
    progress : callable, optional
        Called with the number of minibatches done, and how many there will be, if that is known.
    dtype : str
        Of the second moments that are kept: ``float32`` or ``bfloat16``.
    memory : int, optional
        Bytes of second moments that are summed at a time; the data are run once for each group of
        tensors that fits, several times in all.
    seed : int
        From which labels are drawn.
    out : path-like, optional
        Write `CURVATURE` there. A run that was broken off goes on after the last group of tensors,
        which are kept beside it in files named ``….partial-…`` until all is written.
    force : bool
        Replace an existing file.
    job : str
        What the data are, so that a run goes on only where one of the same data was broken off.

    Returns
    -------
    Statistics

    Raises
    ------
    PruningError
        If there is nothing to measure, the data are too few, a loss, gradient or input is not
        finite, the loss depends on no tensor, or an argument is not understood.

    References
    ----------
    See the scores: `Snip`, `Taylor`, `Gradient`, `Grasp`, `OptimalBrainDamage`, `Wanda`,
    `SynapticFlow`. The product Hg by double differentiation: Pearlmutter 1994, "Fast exact
    multiplication by the Hessian".
    """
    asked, model = _asked(statistics), unwrapped(model)
    if asked & {*CURVATURE}:
        if asked - {*CURVATURE} or masks is not None:
            raise PruningError(
                f"{' and '.join(CURVATURE)} are measured without masks and by a run of their own"
            )
        place = None if out is None else location(out)
        require_values(model)
        measure = partial(measure_curvature, loss=loss, batches=batches, where=where, dtype=dtype)
        measure = partial(measure, train_mode=bool(train_mode), memory=memory, seed=seed, job=job)
        curvature = measure(model, data, progress=progress, out=None if is_remote(place) else place)
        chosen = {name: array for name, array in curvature.arrays.items() if name in asked}
        curvature = replace(curvature, arrays=chosen)
        return curvature if place is None else written(curvature, place, force=force)
    if not 0 < temperature < math.inf:
        raise PruningError(f"expected temperature to be a number above 0, got {temperature}")
    weights = prunable_parameters(model, where)
    require_values(model)
    norms = InputNorms(weights if "input_norm" in asked else {})
    with preserve_state(model), torch.inference_mode(mode=False):
        if train_mode is not None:
            model.train(train_mode)
        for weight in weights.values():
            weight.requires_grad_()
        # Of synaptic flow's minibatch only the shape is taken.
        wanted = 1 if asked == {"synflow"} else batches
        device = next(model.parameters()).device
        passes = Batches(data, wanted, device, passes=1 + ("grasp" in asked), on_batch=progress)
        if masks is not None:
            mask_parameters(model, masks)
        measured = _Measured(model, weights, loss, norms, _seed(model), as_used=train_mode is None)
        first = GradientSums(weights, asked - {"grasp"}, decay)
        divided = GradientSums(weights, asked & {"grasp"})
        example = None
        for number, batch in passes:
            if number == 1 and "synflow" in asked:
                example = example_of(batch)
            measured.add(number, batch, ((1.0, first), (temperature, divided)))
        found = {name: first.statistic(name, weights) for name in first.kinds}
        if "grasp" in asked:
            found["grasp"] = measured.grasp(
                passes, divided.statistic("grasp", weights), temperature
            )
        if "input_norm" in asked:
            found["input_norm"] = norms.norms()
        if "synflow" in asked:
            flow = synaptic_flow(model, example, list(weights))
            found["synflow"] = {name: torch.from_numpy(array) for name, array in flow.items()}
    if asked == {"input_norm"} and not found["input_norm"]:
        raise PruningError(
            "input_norm: the model multiplies nothing with the weights that may be pruned"
        )
    arrays = {
        statistic: {name: part.cpu().numpy() for name, part in sorted(found[statistic].items())}
        for statistic in STATISTICS
        if statistic in asked
    }
    unreached = {*first.unreached(), *divided.unreached()}
    if not first.kinds and not divided.kinds:
        unreached = norms.unreached()
    return Statistics(arrays, passes.count, passes.samples, tuple(sorted(unreached)))


def _asked(statistics: Sequence[str]) -> set[str]:
    asked = {statistics} if isinstance(statistics, str) else set(statistics)
    if not asked or not asked <= set(STATISTICS):
        wrong = ", ".join(sorted(asked - set(STATISTICS))) or "none"
        raise PruningError(
            f"expected statistics to be some of {', '.join(STATISTICS)}, got {wrong}"
        )
    return asked


def _seed(model: nn.Module) -> int | None:
    """Draw a seed for a model; None if all of it is in evaluation mode."""
    if not any(module.training for module in model.modules()):
        return None
    with preserve_generators():
        return int(torch.randint(1 << 62, ()))


@dataclass(frozen=True)
class _Measured:
    """A model that is run on minibatches, and what its layers read."""

    model: nn.Module
    weights: Mapping[str, nn.Parameter]
    loss: Loss | None
    norms: InputNorms
    seed: int | None
    as_used: bool

    def add(self, number: int, batch: Any, sums: Iterable[tuple[float, GradientSums]]) -> None:
        """Count a minibatch: the gradients at each temperature, and the inputs."""
        place = f"minibatch {number}"
        # The first run measures inputs too, but where they are those of the model in use.
        inputs_apart = self.as_used and self.seed is not None
        listens = not inputs_apart
        for temperature, total in sums:
            if total.kinds:
                with self.repeatable(number):
                    with self.norms.listening() if listens else contextlib.nullcontext():
                        loss = self.loss_of(batch, place, temperature)
                    total.add(derivatives(loss, self.weights, place))
                listens = False
        if self.norms.weights and (inputs_apart or listens):
            self.read(number, batch)
        if bad := self.norms.non_finite():
            raise PruningError(f"the input of {bad[0]!r} is not finite in {place}")

    def read(self, number: int, batch: Any) -> None:
        """Run the model for the inputs of its layers alone."""
        with self.repeatable(number), self.norms.listening(), torch.no_grad():
            if self.as_used:
                self.model.eval()
            if self.loss is not None:
                self.loss(self.model, batch)
            else:
                run(self.model, inputs_and_targets(batch)[0])

    def grasp(self, passes: Batches, gradient: Tensors, temperature: float) -> Tensors:
        """Return w ⊙ Hg, by a second pass."""
        factor = unit_factor(gradient)
        for part in gradient.values():
            part.mul_(factor)
        products = GradientSums(self.weights, ("grasp",))
        # Other implementations of attention have no second derivative.
        with sdpa_kernel(SDPBackend.MATH):
            for number, batch in passes.again():
                place = f"minibatch {number}"
                with self.repeatable(number):
                    loss = self.loss_of(batch, place, temperature)
                    products.add(derivatives(loss, self.weights, place, gradient))
        return {
            name: product.div_(factor).mul_(widened(self.weights[name].detach()))
            for name, product in products.mean("grasp").items()
            if name in gradient
        }

    def loss_of(self, batch: Any, place: str, temperature: float) -> torch.Tensor:
        """Return the loss of logits that are divided by a temperature."""
        with tempered(self.model, temperature), torch.enable_grad():
            return require_loss((self.loss or cross_entropy)(self.model, batch), place)

    @contextlib.contextmanager
    def repeatable(self, number: int) -> Iterator[None]:
        """Repeat random numbers per minibatch; restore buffers and generators."""
        if self.seed is None:
            yield
            return
        with preserve_state(self.model, weights=False):
            seed_generators(self.seed + number)
            yield
