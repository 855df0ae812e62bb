"""Buckets that are reduced on each rank without a model, for the tests of reductions."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import distributed

from tensorcomp.gradients.base import Compressor, GradientSpec, StepInfo
from tensorcomp.gradients.ddp.buckets import close_works, is_finite, open_works
from tensorcomp.gradients.ddp.coding_groups import lay_out
from tensorcomp.gradients.ddp.communicator import Communicator
from tensorcomp.gradients.ddp.reduce_context import ReduceContext
from tensorcomp.gradients.ddp.shards import partition
from tensorcomp.gradients.ddp.state_store import StateStore

Shapes = dict[str, tuple[int, ...]]


@dataclass
class Bench:
    """A model's gradients on one rank."""

    shapes: Shapes
    compressor: Callable[[str], Compressor]
    reduce: Callable[..., bool]
    loss: Any = None
    skip_unused: bool = False
    states: StateStore = field(default_factory=StateStore)
    works: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.comm = Communicator(distributed.group.WORLD)
        self._layouts: dict[tuple[str, ...], Any] = {}

    @property
    def sizes(self) -> dict[str, int]:
        return {name: int(np.prod(shape)) for name, shape in self.shapes.items()}

    def step(
        self,
        gradients: dict[str, np.ndarray],
        step: int,
        buckets: Sequence[Sequence[str]] | None = None,
    ) -> dict[str, np.ndarray] | None:
        """Return the means, or None if they are not finite."""
        means: dict[str, np.ndarray] = {}
        self.works = []
        for index, names in enumerate(buckets or [list(self.shapes)]):
            if not self._bucket(index, tuple(names), gradients, means, step):
                self.states.drop()
                return None
        self.states.commit()
        return means

    def _bucket(
        self,
        index: int,
        names: tuple[str, ...],
        gradients: dict[str, np.ndarray],
        means: dict[str, np.ndarray],
        step: int,
    ) -> bool:
        values = np.concatenate([gradients[name].reshape(-1) for name in names])
        layout = self._layouts.get(names)
        if layout is None:
            rank = self.comm.rank
            layout = self._layouts[names] = lay_out(
                [GradientSpec(n, self.shapes[n], values.dtype, worker=rank) for n in names],
                [self.compressor(name) for name in names],
                join_small=not self.skip_unused,
            )
        finite = is_finite(values)
        works = open_works(layout, values, self.states, skip_unused=self.skip_unused and finite)
        context = ReduceContext(
            self.comm,
            f"bucket {index}",
            StepInfo(step),
            layout,
            finite,
            self.states,
            partition(self.sizes, self.comm.world),
            self.loss,
        )
        if self.reduce(works, context):
            return False
        close_works(works, values)
        for work in works:
            if work.new_state is not None:
                self.states.stage(work.group, work.new_state)
        self.works += works
        start = 0
        for name in names:
            stop = start + self.sizes[name]
            means[name] = values[start:stop].copy()
            start = stop
        return True

    def residuals(self) -> dict[str, np.ndarray]:
        """Return the residual of every parameter, and of the means this rank owns."""
        found = {}
        for name, values in self.states.by_name().items():
            for key, value in values.items():
                if key.rpartition(".")[2] == "residual":
                    found[name] = np.array(value, np.float64)
        return found


def draw(shapes: Shapes, step: int, rank: int, dtype: Any = np.float32) -> dict[str, np.ndarray]:
    """Return gradients with heavy tails, of which other ranks know how they come about."""
    rng = np.random.default_rng([step, rank])
    return {name: (rng.standard_normal(shape) ** 3).astype(dtype) for name, shape in shapes.items()}


def several_steps(bench: Bench, layouts: Sequence[Sequence[Sequence[str]] | None]) -> dict:
    """Do a step with each layout of buckets, and return sums of means and what was exchanged."""
    digest = hashlib.sha256()
    sums = {name: np.zeros(size) for name, size in bench.sizes.items()}
    for step, buckets in enumerate(layouts):
        means = bench.step(draw(bench.shapes, step, bench.comm.rank), step, buckets)
        assert means is not None
        for name, mean in means.items():
            sums[name] += mean
            digest.update(mean.tobytes())
    exchanges = bench.comm.take_exchanges()
    return {
        "digest": digest.hexdigest(),
        "sums": sums,
        "residuals": bench.residuals(),
        "sent": sum(exchange.bytes_sent for exchange in exchanges),
        "payload": sum(work.payload_bytes for work in bench.works),
        "kinds": [exchange.kind for exchange in exchanges],
    }


def sums_of_means(shapes: Shapes, steps: int, world: int) -> dict[str, np.ndarray]:
    """Return the sums over steps of the true means of what `draw` gives."""
    sums = {name: np.zeros(int(np.prod(shape))) for name, shape in shapes.items()}
    for step in range(steps):
        for rank in range(world):
            for name, gradient in draw(shapes, step, rank).items():
                sums[name] += gradient.reshape(-1) / world
    return sums
