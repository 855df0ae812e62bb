"""What is done to one bucket, and when a step counts: from gradients to means, by units."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Compressor, GradientSpec, Reduction, StepInfo, Wrapper, chain
from tensorcomp.gradients.ddp import gathering, summing
from tensorcomp.gradients.ddp import reduce_scatter as owners
from tensorcomp.gradients.ddp.buckets import (
    Scratch,
    close_works,
    coded_dtype,
    is_finite,
    load,
    open_works,
    store,
)
from tensorcomp.gradients.ddp.coding_groups import Context, Layout, Piece, UnitWork, is_plain
from tensorcomp.gradients.ddp.communicator import Link
from tensorcomp.gradients.ddp.engine import Job
from tensorcomp.gradients.ddp.layouts import lay_out
from tensorcomp.gradients.ddp.observers import Attendant, Step
from tensorcomp.gradients.ddp.parameters import Parameter
from tensorcomp.gradients.ddp.shard_means import give_back
from tensorcomp.gradients.ddp.state_store import Memory
from tensorcomp.gradients.ddp.tensors import (
    give_back_tensors,
    is_native,
    load_tensor,
    natively,
    open_tensor_works,
    store_tensor,
)
from tensorcomp.gradients.wrappers.packet_loss import PacketLoss


class Reducer:
    """Averages the buckets of one model over the ranks.

    Parameters
    ----------
    compressor : Compressor
    parameters : mapping of int to Parameter
        By the ``id`` of the tensor, in the model's order.
    link : Link
    find_unused : bool
        Whether parameters may be unused: those whose gradient is all zero here are silent then.
    packet_loss : PacketLoss or None

    Attributes
    ----------
    attendants : tuple of Attendant
        Look on, in this order.
    steps : int
        Steps that are done.
    device : torch.device or None
        Where gradients are compressed if that is not the host.
    memory : Memory
    """

    def __init__(
        self,
        compressor: Compressor,
        parameters: Mapping[int, Parameter],
        link: Link,
        *,
        find_unused: bool = False,
        packet_loss: PacketLoss | None = None,
    ) -> None:
        self.compressor = compressor
        self.parameters = dict(parameters)
        self.sizes = {one.name: one.size for one in parameters.values()}
        self.link = link
        self.memory = Memory()
        self.steps = 0
        self.device: torch.device | None = link.device if link.device.type != "cpu" else None
        self._step = Step()
        self.attendants: tuple[Attendant, ...] = ()
        self._find_unused = find_unused
        self._groups: tuple[tuple[str, ...], ...] = ()
        self._packet_loss = packet_loss
        self._scratch = Scratch()
        self._decides = decides(compressor)
        self._concrete: dict[str, Compressor] = {}
        self._layouts: dict[tuple[object, ...], tuple[tuple[Piece, ...], Layout]] = {}

    def begin(self, info: StepInfo, scale: float) -> bool:
        """Begin a step, and return whether there is anything to do in it.

        There is nothing where every gradient is sent as it is, no residual is left, and nobody
        looks on: `passed` ends such a step. One that was not ended is forgotten.

        Parameters
        ----------
        info : StepInfo
        scale : float
            What gradients are multiplied by on their way here.
        """
        self.memory.drop()
        self._step = step = Step(info, scale)
        if self._decides or not self._concrete:
            for one in self.parameters.values():
                compressor = self.compressor.at(info, self.spec(one))
                if compressor != self._concrete.get(one.name):
                    self._concrete[one.name] = compressor
        for attendant in self.attendants:  # each of them is asked
            step.watched |= attendant.wants(step)
        busy = step.watched or self._packet_loss is not None or self.memory.used
        return busy or not self._is_plain()

    def passed(self) -> None:
        """End a step in which nothing was done here."""
        self.steps += 1
        for attendant in self.attendants:
            attendant.passed(self._step)

    def run(self, job: Job) -> None:
        """Replace a bucket's gradients by their mean.

        Raises
        ------
        GradientError, CodecError
            On all ranks alike, except where the connection is lost.
        """
        step = self._step
        step.buckets += 1
        if job.buffer.is_sparse:
            self._pass_sparse(job)
        else:
            step.flagged |= self._reduce(job, step)
        if job.last:
            self._end(step)

    def spec(self, one: Parameter) -> GradientSpec:
        """Return the spec of a parameter's gradient on this rank."""
        return GradientSpec(one.name, one.shape, one.dtype, one.role, self.link.rank)

    def concrete(self, one: Parameter, info: StepInfo) -> Compressor:
        """Return what a parameter's gradient is compressed by."""
        return self.compressor.at(info, self.spec(one))

    def restore(
        self, states: Mapping[str, Any], steps: int, groups: Sequence[Sequence[str]]
    ) -> None:
        """Go on from states by parameter, after so many steps, with the same units."""
        self.memory.replace(states)
        self.steps = steps
        self._groups = tuple(tuple(names) for names in groups)
        self._layouts.clear()

    def _is_plain(self) -> bool:
        return all(map(is_plain, self._concrete.values()))

    def _end(self, step: Step) -> None:
        if step.flagged:
            self.memory.drop()
        else:
            self.memory.commit()
            self.steps += 1
            for work in step.works:
                if not work.silent:
                    step.sent.update(work.unit.key)
            if len(step.sent) == len(self.sizes) and self._is_plain():
                self.memory.clear()  # what was left out has been sent
        for attendant in self.attendants:
            attendant.ended(step)

    def _reduce(self, job: Job, step: Step) -> bool:
        key = f"bucket {job.index}"
        layout = self._layout(job)
        if is_native(layout):
            tensor = load_tensor(job.buffer, 1.0 / step.scale)
            finite = bool(torch.isfinite(tensor).all().item())
            self._show(step, layout, tensor, finite=finite)
            silent = self._find_unused and finite
            works = open_tensor_works(layout, tensor, self.memory, skip_unused=silent)
            flagged = self._exchange(works, layout, key, step, finite=finite)
            if not flagged:
                close_works(works, tensor)
                flagged = not store_tensor(tensor, step.scale, job.buffer)
        else:
            values = load(job.buffer, 1.0 / step.scale, self._scratch, key)
            finite = is_finite(values)
            self._show(step, layout, values, finite=finite)
            silent = self._find_unused and finite
            works = open_works(layout, values, self.memory, self._scratch, skip_unused=silent)
            flagged = self._exchange(works, layout, key, step, finite=finite)
            if not flagged:
                close_works(works, values)
                flagged = not store(values, step.scale, job.buffer)
        if not flagged:
            for work in works:
                if work.new_state is not None:
                    self.memory.stage(work.unit, work.new_state)
            step.works.extend(works)
        if flagged:
            job.buffer.detach().fill_(float("nan"))
        for attendant in self.attendants:
            attendant.reduced(step, layout, () if flagged else works, job.buffer)
        return flagged

    def _show(self, step: Step, layout: Layout, values: Any, *, finite: bool) -> None:
        """Let attendants see a bucket's gradients, on the host."""
        if step.watched or not finite:
            array = values.cpu().numpy() if isinstance(values, torch.Tensor) else values
            for attendant in self.attendants:
                attendant.loaded(step, layout, array)

    def _exchange(
        self, works: list[UnitWork], layout: Layout, key: str, step: Step, *, finite: bool
    ) -> bool:
        """Fill the means of all units; return whether some rank has a value that is not finite."""
        context = Context(
            key,
            step.info.step,
            step.info.phase,
            layout,
            finite,
            self.memory,
            self.sizes,
            self._packet_loss,
        )
        routes = layout.routes if self._packet_loss is None else layout.lossy_routes
        for way, indices in routes.items():
            some = [works[index] for index in indices]
            if way != "reduce_scatter" and finite:
                returned = give_back_tensors if is_native(layout) else give_back
                returned(some, self.link, context)
            if _reduction(way)(some, self.link, context):
                return True
        return False

    def _layout(self, job: Job) -> Layout:
        ids = tuple(map(id, job.parameters))
        key = (*ids, job.buffer.dtype)
        known = self._layouts.get(key)
        pieces = known[0] if known is not None else self._pieces(job)
        compressors = [self._concrete[piece.name] for piece in pieces]
        if known is not None and all(
            one is other for one, other in zip(compressors, known[1].compressors, strict=True)
        ):
            return known[1]
        layout = lay_out(
            pieces,
            compressors,
            dtype=coded_dtype(job.buffer.dtype),
            worker=self.link.rank,
            join_small=not self._find_unused,
            groups=self._groups,
        )
        if self.device is not None and self._packet_loss is None:
            layout = natively(layout, self.device)
        self._layouts[key] = (pieces, layout)
        return layout

    def _pieces(self, job: Job) -> tuple[Piece, ...]:
        pieces = []
        start = 0
        for tensor in job.parameters:
            one = self.parameters.get(id(tensor))
            if one is None:
                raise GradientError(
                    f"a bucket holds a parameter of shape {tuple(tensor.shape)} that the model did "
                    "not have when its gradients' compression began; register compression last"
                )
            stop = start + tensor.numel()
            pieces.append(Piece(one.name, one.shape, start, stop, one.role))
            start = stop
        return tuple(pieces)

    def _pass_sparse(self, job: Job) -> None:
        """Average sparse gradients as they are."""
        self._step.sent.update(piece.name for piece in self._pieces(job))
        if self.link.world > 1:
            job.buffer.div_(self.link.world)
            dist.all_reduce(job.buffer, group=self.link.group)


def decides(compressor: Compressor) -> bool:
    """Return whether what a compressor is depends on the step."""
    return any(type(one).at not in (Compressor.at, Wrapper.at) for one in chain(compressor))


def _reduction(way: Reduction) -> Callable[[Sequence[UnitWork], Link, Context], bool]:
    if way == "gather":
        return gathering.reduce
    if way == "reduce_scatter":
        return owners.reduce
    return summing.reduce
