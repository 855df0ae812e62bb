"""Compress the reduce-scatters of fully sharded modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from tensorcomp._names import clean_name
from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Compressor, GradientSpec, StepInfo
from tensorcomp.gradients.ddp import state_dict as states
from tensorcomp.gradients.ddp.buckets import is_finite
from tensorcomp.gradients.ddp.coding_groups import CodingGroup, Layout
from tensorcomp.gradients.ddp.communicator import Communicator
from tensorcomp.gradients.ddp.frames import decode, exchange
from tensorcomp.gradients.ddp.reduce_context import GroupWork, ReduceContext
from tensorcomp.gradients.ddp.roll_call import LostRanksError
from tensorcomp.gradients.ddp.state_store import StateStore
from tensorcomp.gradients.ddp.uncompressed import Pausable
from tensorcomp.gradients.payload.states import reading_saved

ROOT = "the model"  # the name of the module that holds all others


class FsdpCompression(Pausable):
    """Compress a fully sharded model's gradients, as `compress_fsdp` returns it.

    Parameters
    ----------
    compressor : Compressor
    scaler : torch.amp.GradScaler or None

    Attributes
    ----------
    compressor : Compressor
    steps : int
        Steps that were done; those in which a value was not finite do not count.
    bytes_sent : float
        By this rank so far, without what TCP adds.
    """

    def __init__(self, compressor: Compressor, scaler: torch.amp.GradScaler | None) -> None:
        self.compressor = compressor
        self.steps = 0
        self.bytes_sent = 0.0
        self._scaler = scaler
        self._comms: dict[Any, Communicator] = {}
        self._layouts: dict[str, Layout] = {}
        # What a step changes counts once the next one begins, if all of it was finite.
        self._states = StateStore()
        self._seen: set[str] = set()
        self._flagged = False
        self._closed = False

    def state_dict(self) -> dict[str, Any]:
        """Return what this rank remembers, as plain tensors and numbers.

        Returns
        -------
        dict
            ``torch.load(..., weights_only=True)`` reads it. States are kept by the name of the
            module and the owner of the shard.
        """
        self._settle()
        ranks = {(comm.world, comm.rank) for comm in self._comms.values()}
        values, _ = states.divide(self._states.by_name())
        return {
            "version": states.VERSION,
            "mode": "exact",
            "ranks": [list(pair) for pair in sorted(ranks)],
            "step": self.steps,
            "compressor": self.compressor.text(),
            "states": states.as_tensors(values),
            "means": {},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned on this rank of as many ranks.

        Raises
        ------
        GradientError
            If it is the state of another compressor; if it is that of other shards, in the next
            step.
        """
        states.check_fields(state, ("step", "compressor", "states"))
        if "ranks" not in state:
            raise GradientError(
                "expected a state of FsdpCompression, got another one; give what it returned"
            )
        if state["compressor"] != self.compressor.text():
            raise GradientError(
                f"the state is that of {state['compressor']}; compress by it, or begin anew"
            )
        self._settle()
        with reading_saved():
            saved = states.saved_states({_clean(n): s for n, s in state["states"].items()})
        self._states.replace(saved)
        self.steps = state["step"]

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Stop compressing; where a rank has failed, end all of them with its message."""
        if error is None:
            self.close()
        for comm in self._comms.values() if error is not None else ():
            failure = comm.roll_call.failure(wait=1.0)
            if failure is None:
                comm.roll_call.post(f"{type(error).__name__}: {error}")
            elif not isinstance(error, GradientError):
                raise GradientError(failure) from error

    def close(self) -> None:
        """Stop compressing on all ranks: reduce gradients as they are from now on."""
        self._closed = True

    def reduce_scatter(
        self, name: str, out: torch.Tensor, given: torch.Tensor, group: Any, op: Any
    ) -> None:
        """Reduce a module's gradients: shard r of each rank goes to rank r.

        Parameters
        ----------
        name : str
            Of the module.
        out : torch.Tensor
            (m,) this rank's shard of the mean or the sum.
        given : torch.Tensor
            (W · m,)
        group : torch.distributed.ProcessGroup
        op : torch.distributed.ReduceOp
            The mean or the sum.

        Raises
        ------
        GradientError
            On all ranks, if a rank failed to compress, or compresses something else.
        """
        if self._closed or self._paused:
            # torch 2.13 renamed it and deprecated the old name
            reduce: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
            reduce(out, given, group=group, op=op)
            return
        if name in self._seen:
            self._settle()  # another backward pass without a forward pass between
        self._seen.add(name)
        if group not in self._comms:
            self._comms[group] = Communicator(group, given.device)
        comm = self._comms[group]
        scale = 1.0 if self._scaler is None else float(self._scaler.get_scale())
        wide = torch.float64 if given.dtype == torch.float64 else torch.float32
        values = given.detach().to("cpu", wide, copy=scale != 1.0).numpy()
        if scale != 1.0:
            values /= values.dtype.type(scale)
        flagged, self._flagged = self._flagged, True  # where an error ends this
        try:
            total = self._exchange(name, values.reshape(comm.world, -1), comm)
        except LostRanksError as error:
            raise GradientError(comm.roll_call.failure(wait=1.0) or str(error)) from error
        except Exception as error:
            comm.roll_call.post(f"{type(error).__name__}: {error}")
            raise
        self._flagged = flagged or total is None
        self.bytes_sent += sum(one.bytes_sent for one in comm.take_exchanges())
        if total is None:
            out.fill_(float("nan"))
            return
        out.copy_(torch.from_numpy(total))
        out.mul_(_factor(op, comm.world) * scale)

    def _exchange(self, name: str, shards: np.ndarray, comm: Communicator) -> np.ndarray | None:
        """Return the sum of this rank's shard; None if a value is not finite."""
        info = StepInfo(self.steps)
        layout = self._layout(name, shards, info, comm.rank)
        context = ReduceContext(comm, name, info, layout, is_finite(shards), self._states, {})
        works = [
            GroupWork(group, shard, shard, self._states.state(group))
            for group, shard in zip(layout.groups, shards, strict=True)
        ]
        owners = iter(range(comm.world))
        received = exchange(works, lambda work: [(next(owners), work.encode())], context)
        if received is None:
            return None
        for work in works:
            self._states.stage(work.group, work.new_state)
        own = layout.groups[comm.rank]
        total = np.zeros(shards.shape[1], shards.dtype)
        for sender, frame in enumerate(received):
            decode(own.compressor, own.spec, frame.payloads[0], sender).add_to(total, 1.0)
        return total

    def _layout(self, name: str, shards: np.ndarray, info: StepInfo, rank: int) -> Layout:
        """Return the coding groups of a module, one for each shard."""
        groups = []
        for owner, shard in enumerate(shards):
            spec = GradientSpec(f"{name}, part {owner}", (shard.size,), shard.dtype, "", rank)
            groups.append(CodingGroup(spec, self.compressor.at(info, spec), (spec,)))
        layout = Layout(tuple(groups))
        if self._layouts.get(name) != layout:
            self._layouts[name] = layout
        return self._layouts[name]

    def settle_before_forward(self, module: nn.Module, inputs: Any) -> None:
        """End the step before; the model calls this before its forward pass."""
        if torch.is_grad_enabled():
            self._settle()

    def _settle(self) -> None:
        """Make what was staged count, or forget it where a value was not finite."""
        if self._seen and not self._flagged:
            self._states.commit()
            self.steps += 1
        self._states.drop()
        self._seen.clear()
        self._flagged = False


def _clean(name: str) -> str:
    """Return the name of a module's shard without those of wrappers."""
    module, part, owner = name.rpartition(", part ")
    return (clean_name(module) or ROOT) + part + owner


def _factor(op: Any, world: int) -> float:
    if op == dist.ReduceOp.AVG:
        return 1.0 / world
    if op == dist.ReduceOp.SUM:
        return 1.0
    raise GradientError(
        f"gradients are averaged or summed; FSDP asks for {op}: leave set_gradient_divide_factor"
    )
