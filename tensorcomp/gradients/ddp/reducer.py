"""Reduce the buckets of a model: from gradients to means, step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tensorcomp._names import clean_names
from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Compressor, GradientSpec, Reduction, StepInfo
from tensorcomp.gradients.ddp.averaging import gather, reduce_scatter
from tensorcomp.gradients.ddp.buckets import (
    close_works,
    coded_dtype,
    is_finite,
    load,
    open_works,
    store,
)
from tensorcomp.gradients.ddp.coding_groups import Layout, is_plain, lay_out
from tensorcomp.gradients.ddp.communicator import Communicator, Scratch
from tensorcomp.gradients.ddp.engine import Job
from tensorcomp.gradients.ddp.observers import Observer, Step
from tensorcomp.gradients.ddp.reduce_context import GroupWork, ReduceContext
from tensorcomp.gradients.ddp.shards import partition, return_residuals
from tensorcomp.gradients.ddp.state_store import StateStore
from tensorcomp.gradients.ddp.summing import reduce_sum
from tensorcomp.gradients.payload.arrays import host
from tensorcomp.gradients.wrappers.base import Wrapper, chain
from tensorcomp.gradients.wrappers.packet_loss import PacketLoss
from tensorcomp.gradients.wrappers.per_role import gradient_roles

_REDUCTIONS: dict[Reduction, Callable[[Sequence[GroupWork], ReduceContext], bool]] = {
    "gather": gather,
    "reduce_scatter": reduce_scatter,
    "sum": reduce_sum,
}


class Reducer:
    """Average the buckets of one model over the ranks.

    Parameters
    ----------
    compressor : Compressor
    parameters : mapping of int to GradientSpec
        By the ``id`` of the tensor, in the model's order.
    comm : Communicator
    find_unused : bool
        Whether parameters may be unused: those whose gradient is all zero here are silent then.
    packet_loss : PacketLoss or None

    Attributes
    ----------
    bounds : dict of str to tuple of int
        Where the shards of each parameter begin and end (`shards.partition`).
    device : torch.device or None
        Where gradients are compressed if that is not the host.
    observers : tuple of Observer
        Are called in this order.
    """

    def __init__(
        self,
        compressor: Compressor,
        parameters: Mapping[int, GradientSpec],
        comm: Communicator,
        *,
        find_unused: bool,
        packet_loss: PacketLoss | None,
    ) -> None:
        self.compressor = compressor
        self.parameters = parameters
        self.comm = comm
        self.bounds = partition({one.name: one.size for one in parameters.values()}, comm.world)
        self.states = StateStore()
        self.steps = 0
        self.device: torch.device | None = comm.device if comm.device.type != "cpu" else None
        self.observers: tuple[Observer, ...] = ()
        self._step = Step()
        self._find_unused = find_unused
        self._saved: tuple[tuple[str, ...], ...] = ()
        self._packet_loss = packet_loss
        self._scratch = Scratch()
        # Whether what a compressor is depends on the step.
        self._decides = any(
            type(one).at not in (Compressor.at, Wrapper.at) for one in chain(compressor)
        )
        self._concrete: dict[str, Compressor] = {}
        self._layouts: dict[tuple[object, ...], Layout] = {}

    def begin(self, info: StepInfo, scale: float) -> bool:
        """Begin a step, and return whether there is anything to do in it.

        There is nothing where every gradient is sent as it is, no residual is left, and nobody
        observes it: `end` ends such a step. One that was not ended is forgotten. The scale is what
        gradients are multiplied by on their way here.
        """
        self.states.drop()
        self._step = step = Step(info, scale)
        if self._decides or not self._concrete:
            for one in self.parameters.values():
                compressor = self.compressor.at(info, one)
                if compressor != self._concrete.get(one.name):
                    self._concrete[one.name] = compressor
                    self._layouts.clear()
        for observer in self.observers:  # each of them is asked
            step.watched |= observer.wants(step)
        busy = step.watched or self._packet_loss is not None or self.states.used
        step.passed = not busy and self._is_plain()
        return not step.passed

    def run(self, job: Job) -> None:
        """Replace a bucket's gradients by their mean."""
        if job.buffer.is_sparse:
            self._pass_sparse(job)
        else:
            self._step.flagged |= self._reduce(job, self._step)
        if job.last:
            self.end()

    def restore(
        self, states: Mapping[str, Any], steps: int, groups: Sequence[Sequence[str]]
    ) -> None:
        """Resume from states by parameter, a step count and coding groups."""
        self.states.replace(states)
        self.steps = steps
        self._saved = tuple(tuple(names) for names in groups)
        self._layouts.clear()

    def end(self) -> None:
        """End a step: make its states count, or drop them if it was flagged."""
        step = self._step
        if step.flagged:
            self.states.drop()
        else:
            self.states.commit()
            self.steps += 1
            if step.sent.issuperset(self.bounds) and self._is_plain():
                self.states.replace({})  # what was left out has been sent
        for observer in self.observers:
            observer.ended(step)

    def _is_plain(self) -> bool:
        return all(map(is_plain, self._concrete.values()))

    def _reduce(self, job: Job, step: Step) -> bool:
        """Reduce a bucket; return whether some rank has a value that is not finite."""
        key = f"bucket {job.index}"
        layout = self._layout(job)
        values = load(job.buffer, 1.0 / step.scale, self._scratch, key, stay=layout.native)
        finite = is_finite(values)
        if step.watched or not finite:
            array = host(values)
            for observer in self.observers:
                observer.loaded(step, layout, array)
        skip = self._find_unused and finite
        works = open_works(layout, values, self.states, skip_unused=skip)
        context = ReduceContext(
            self.comm, key, step.info, layout, finite, self.states, self.bounds, self._packet_loss
        )
        flagged = self._exchange(works, context)
        if not flagged:
            close_works(works, values)
            flagged = not store(values, step.scale, job.buffer)
        if flagged:
            job.buffer.detach().fill_(float("nan"))
            works = []
        for work in works:
            if work.new_state is not None:
                self.states.stage(work.group, work.new_state)
            if not work.silent:
                step.sent.update(work.group.key)
        for observer in self.observers:
            observer.reduced(step, layout, works, job.buffer)
        return flagged

    def _exchange(self, works: list[GroupWork], context: ReduceContext) -> bool:
        """Fill all groups' means; return whether some rank has non-finite values."""
        for way, indices in context.layout.routes.items():
            some = [works[index] for index in indices]
            if way != "reduce_scatter" and context.finite:
                return_residuals(some, context)
            if _REDUCTIONS[way](some, context):
                return True
        return False

    def _layout(self, job: Job) -> Layout:
        key = (*map(id, job.parameters), job.buffer.dtype)
        layout = self._layouts.get(key)
        if layout is None:
            specs = self._specs(job)
            layout = self._layouts[key] = lay_out(
                specs,
                [self._concrete[one.name] for one in specs],
                join_small=not self._find_unused,
                device=self.device,
                saved=self._saved,
                lossy=self._packet_loss is not None,
            )
        return layout

    def _specs(self, job: Job) -> list[GradientSpec]:
        for tensor in job.parameters:
            if id(tensor) not in self.parameters:
                raise GradientError(
                    f"a bucket holds a parameter of shape {tuple(tensor.shape)} that the model did "
                    "not have when its gradients' compression began; register compression last"
                )
        return [self.parameters[id(tensor)] for tensor in job.parameters]

    def _pass_sparse(self, job: Job) -> None:
        """Average sparse gradients as they are."""
        self._step.sent.update(one.name for one in self._specs(job))
        if self.comm.world > 1:
            job.buffer.div_(self.comm.world)
            dist.all_reduce(job.buffer, group=self.comm.group)


def parameters_of(model: DistributedDataParallel, rank: int) -> dict[int, GradientSpec]:
    """Return the specs of trained parameters by the ``id`` of their tensor.

    They are in the model's order, without the names of wrappers such as `torch.compile`'s. A
    parameter that several modules share has its first name; complex ones are refused.
    """
    ignored = getattr(model, "parameters_to_ignore", ())
    named = model.module.named_parameters()
    trained = {name: one for name, one in named if one.requires_grad and name not in ignored}
    for name, one in trained.items():
        if one.is_complex():
            raise GradientError(
                f"the parameter {name!r} is {one.dtype}, and gradients of complex parameters "
                "cannot be compressed; make it a pair of real ones (torch.view_as_real)"
            )
    names = clean_names(trained)
    trained = {names[name]: one for name, one in trained.items()}
    roles = gradient_roles({name: tuple(one.shape) for name, one in trained.items()})
    return {
        id(one): GradientSpec(name, tuple(one.shape), coded_dtype(one.dtype), roles[name], rank)
        for name, one in trained.items()
    }
