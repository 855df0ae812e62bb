"""Training by several workers in one process: their gradients go through the pure compressors.

What the workers send, what is averaged and what is remembered is what `tensorcomp.gradients` does
between processes, by the same classes; only the wires are missing. What a payload decodes to is
taken from its maker, and checked against its bytes every so often.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from benchmarks.gradients.tasks import WORKERS, Network, Rule, Task
from tensorcomp.gradients import Compressor, GradientSpec, Payload, StepInfo
from tensorcomp.gradients.base import State
from tensorcomp.gradients.ddp.shards import compressor_of_means
from tensorcomp.gradients.payload.decoded import DecodedGradient
from tensorcomp.gradients.payload.states import carry

CHECKED_EVERY = 100  # steps


class Unit:
    """A tensor that is compressed as one: what all workers, and its owners, remember of it.

    Owners are one here: the parts of several differ from it where parts are cut only.
    """

    def __init__(
        self, compressor: Compressor, name: str, shape: tuple[int, ...], workers: int
    ) -> None:
        self.compressor = compressor
        self.specs = [GradientSpec(name, shape, worker=worker) for worker in range(workers)]
        self.concrete: Compressor | None = None
        self.states: list[State] = []
        self.owner: tuple[Compressor, State] | None = None
        self.nbytes = 0  # payload bytes of worker 0 at the last step

    def mean(self, gradients: np.ndarray, info: StepInfo) -> np.ndarray:
        """Return the mean that all workers come to, (n,), of their gradients (workers, n)."""
        gradients = gradients.reshape(-1, *self.specs[0].shape)
        concrete = self._settled(info)
        if concrete.reduction == "sum":
            return self._by_sums(gradients, concrete)
        mean = np.zeros(self.specs[0].size, gradients.dtype)
        for worker, gradient in enumerate(gradients):
            payload, self.states[worker] = concrete.step(gradient, self.states[worker])
            decoded(concrete, payload, info).add_to(mean, 1 / len(gradients))
            if worker == 0:
                self.nbytes = len(payload.data)
        if self.owner is None:
            return mean
        owner, state = self.owner
        payload, state = owner.step(mean.reshape(self.specs[0].shape), state)
        self.owner = owner, state
        mean = np.zeros_like(mean)
        decoded(owner, payload, info).add_to(mean, 1.0)
        return mean

    def _settled(self, info: StepInfo) -> Compressor:
        concrete = self.compressor.at(info, self.specs[0])
        if concrete == self.concrete:
            return concrete
        if self.concrete is None:
            self.states = [concrete.init(spec) for spec in self.specs]
        else:
            pairs = zip(self.states, self.specs, strict=True)
            self.states = [carry(concrete, state, spec) for state, spec in pairs]
        self.concrete, self.owner = concrete, None
        if concrete.reduction == "reduce_scatter":
            owner = compressor_of_means(concrete)
            self.owner = owner, owner.init(replace(self.specs[0], worker=len(self.specs)))
        return concrete

    def _by_sums(self, gradients: np.ndarray, concrete: Compressor) -> np.ndarray:
        """Run the workers' phases in step, averaging what each yields."""
        pairs = zip(gradients, self.states, strict=True)
        running = [concrete.phases(gradient, state) for gradient, state in pairs]
        arrays = [next(phases) for phases in running]
        self.nbytes = 0
        ends: list[tuple[np.ndarray, DecodedGradient, State]] = []
        while not ends:
            self.nbytes += arrays[0].nbytes
            mean = arrays[0].copy()
            for array in arrays[1:]:
                mean += array
            mean /= len(arrays)
            arrays = []
            for phases in running:
                try:
                    arrays.append(phases.send(mean))
                except StopIteration as stop:
                    ends.append(stop.value)
        self.states = [state for _, _, state in ends]
        result: np.ndarray = ends[0][0].reshape(-1)
        return result


def decoded(compressor: Compressor, payload: Payload, info: StepInfo) -> DecodedGradient:
    """Return what a payload decodes to, as its maker says; every so often check that it is so."""
    if payload.decoded is None or info.step % CHECKED_EVERY:
        return payload.decoded or compressor.receive(payload)
    known = np.zeros(payload.spec.shape, payload.spec.dtype)
    payload.decoded.add_to(known.reshape(-1), 1.0)
    if not np.array_equal(known, compressor.decode(payload)):
        raise SystemExit(f"{compressor.text()}: what is sent and what is received differ")
    return payload.decoded


@dataclass(frozen=True)
class Outcome:
    """Result of a training: accuracy in per cent, and bytes of a worker's payloads.

    `raw` are the bytes of a gradient, `steady` those of the payloads of the last step, and `sent`
    those of all steps.
    """

    accuracy: float
    raw: int
    steady: int
    sent: int
    steps: int


def orders(count: int, rows: int, epochs: int, seed: int) -> Iterator[torch.Tensor]:
    """Yield which of the training digits each step takes, so many rows; whole steps only."""
    generator = torch.Generator().manual_seed(1_000_003 * seed)
    for _ in range(epochs):
        order = torch.randperm(count, generator=generator)
        yield from torch.split(order[: count // rows * rows], rows)


def train(
    task: Task, compressor: Compressor, rule: Rule, seed: int, *, workers: int = WORKERS
) -> Outcome:
    """Train a network by several workers, and score it on digits that it has not seen.

    Training ends where a gradient is not finite.
    """
    digits = task.digits(seed)
    network = Network(task.pixels)
    weights = network.weights(seed)
    optimizer = rule.of(weights)
    units = [
        (part, Unit(compressor, name, shape, workers)) for part, name, shape in network.units()
    ]
    chosen = list(orders(len(digits.classes), workers * task.batch, task.epochs, seed))
    sent = [0]
    for step, rows in enumerate(chosen):
        for group in optimizer.param_groups:
            group["lr"] = rule.rate_at(step, len(chosen))
        images, classes = digits.images[rows], digits.classes[rows]
        gradients = network.gradients(
            weights, images.view(workers, task.batch, -1), classes.view(workers, task.batch)
        )
        if not np.isfinite(gradients).all():
            break
        means = [unit.mean(gradients[:, part], StepInfo(step)) for part, unit in units]
        weights.grad = torch.from_numpy(np.concatenate(means))
        optimizer.step()
        sent.append(sum(unit.nbytes for _, unit in units))
    raw = weights.numel() * weights.element_size()
    return Outcome(network.accuracy(weights, digits), raw, sent[-1], sum(sent), len(chosen))
