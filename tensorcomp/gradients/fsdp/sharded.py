"""What compresses the gradients of fully sharded modules on their way to the owners of shards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Compressor, GradientSpec, Payload, State, StepInfo
from tensorcomp.gradients.ddp import checkpoints, frames
from tensorcomp.gradients.ddp.buckets import coded_dtype, is_finite
from tensorcomp.gradients.ddp.communicator import Link
from tensorcomp.gradients.ddp.state_check import VERSION, check_parts
from tensorcomp.gradients.ddp.state_store import Saved
from tensorcomp.gradients.payload.decoded import EmptyGradient
from tensorcomp.gradients.payload.states import carry, flatten


class FsdpCompression:
    """The compression of a fully sharded model's gradients, as `compress_fsdp` returns it.

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
        self._links: dict[Any, Link] = {}
        self._states: dict[str, tuple[Compressor, State]] = {}
        self._loaded: dict[str, Saved] = {}
        # What a step changes counts once the next one begins, if all of it was finite.
        self._staged: dict[str, tuple[Compressor, State]] = {}
        self._seen: set[str] = set()
        self._flagged = False
        self._closed = False

    def state_dict(self) -> dict[str, Any]:
        """Return what this rank remembers, as plain tensors and numbers.

        Returns
        -------
        dict
            ``torch.load(..., weights_only=True)`` reads it. States are kept by the name of the
            module and the owner of the part.
        """
        self._settle()
        ranks = {(link.world, link.rank) for link in self._links.values()}
        values = {name: flatten(state) for name, (_, state) in self._states.items()}
        values |= {name: dict(saved.values) for name, saved in self._loaded.items()}
        return {
            "version": VERSION,
            "mode": "exact",
            "ranks": [list(pair) for pair in sorted(ranks)],
            "step": self.steps,
            "compressor": self.compressor.text(),
            "states": checkpoints.as_tensors(values),
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
        check_parts(state, ("step", "compressor", "states"))
        if "ranks" not in state:
            raise GradientError("this is no state of FSDP's compression; give what it returned")
        if state["compressor"] != self.compressor.text():
            raise GradientError(
                f"the state is that of {state['compressor']}; compress by it, or begin anew"
            )
        self._settle()
        values = checkpoints.as_arrays(state["states"])
        self._states = {}
        self._loaded = {name: Saved(fields) for name, fields in values.items()}
        self.steps = state["step"]

    def close(self) -> None:
        """Compress no more: from now on gradients are reduced as they are. All ranks do it."""
        self._closed = True

    def reduce_scatter(
        self, name: str, out: torch.Tensor, given: torch.Tensor, group: Any, op: Any
    ) -> None:
        """Reduce what FSDP gives for a module: part r of each rank's values goes to rank r.

        Parameters
        ----------
        name : str
            Of the module.
        out : torch.Tensor
            (m,) this rank's part of the mean or the sum.
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
        if self._closed:
            _reduce_as_it_is(out, given, group, op)
            return
        if name in self._seen:
            self._settle()  # another backward pass without a forward pass between
        self._seen.add(name)
        link = self._link(group, given.device)
        scale = 1.0 if self._scaler is None else float(self._scaler.get_scale())
        values = given.detach().to("cpu", _torch_dtype(given.dtype), copy=scale != 1.0).numpy()
        if scale != 1.0:
            values /= values.dtype.type(scale)
        flagged, self._flagged = self._flagged, True  # where an error ends this
        total = self._exchange(name, values.reshape(link.world, -1), link)
        self._flagged = flagged or total is None
        self.bytes_sent += sum(one.bytes_sent for one in link.take_exchanges())
        if total is None:
            out.fill_(float("nan"))
            return
        out.copy_(torch.from_numpy(total))
        out.mul_(_factor(op, link.world) * scale)

    def _exchange(self, name: str, parts: np.ndarray, link: Link) -> np.ndarray | None:
        """Return the sum of this rank's part, None if some rank's values are not all finite."""
        specs = [
            GradientSpec(f"{name}, part {owner}", (part.size,), part.dtype, "", link.rank)
            for owner, part in enumerate(parts)
        ]
        info = StepInfo(self.steps)
        concrete = [self.compressor.at(info, spec) for spec in specs]
        schema = frames.schema_hash(
            f"{spec.name}: {spec.size} of {spec.dtype} by {one.text()}"
            for spec, one in zip(specs, concrete, strict=True)
        )
        flags, payloads = self._compress(parts, specs, concrete)
        heads = [frames.head(flags, self.steps, schema, sent) for sent in payloads]
        outgoing = [b"".join([head, *sent]) for head, sent in zip(heads, payloads, strict=True)]
        rows = link.all_to_all_bytes(outgoing)
        received = [frames.read(row, rank) for rank, row in enumerate(rows)]
        _check(name, received)
        if not all(frame.finite for frame in received):
            return None
        total = np.zeros(parts.shape[1], parts.dtype)
        for frame in received:
            payload = Payload(frame.payloads[0].tobytes(), specs[link.rank])
            sent = concrete[link.rank].receive(payload) if payload.data else EmptyGradient()
            sent.add_to(total, 1.0)
        return total

    def _compress(
        self, parts: np.ndarray, specs: list[GradientSpec], concrete: list[Compressor]
    ) -> tuple[int, list[list[bytes]]]:
        """Return flags, and the payloads for each owner."""
        if not is_finite(parts):
            return frames.NON_FINITE, [[] for _ in specs]
        payloads = []
        for part, spec, compressor in zip(parts, specs, concrete, strict=True):
            try:
                payload, after = compressor.step(part, self._state(spec, compressor))
            except Exception as error:  # the other ranks wait for this frame
                message = f"{spec.name}: {type(error).__name__}: {error}".encode()
                return frames.FAILED, [[message] for _ in specs]
            self._staged[spec.name] = compressor, after
            payloads.append([payload.data])
        return 0, payloads

    def _state(self, spec: GradientSpec, compressor: Compressor) -> State:
        if spec.name in self._loaded:
            return self._loaded[spec.name].fit(compressor.init(spec))
        known = self._states.get(spec.name)
        if known is None:
            return compressor.init(spec)
        return known[1] if known[0] == compressor else carry(compressor, known[1], spec)

    def _link(self, group: Any, device: torch.device) -> Link:
        if group not in self._links:
            own = device if dist.get_backend(group) == "nccl" else torch.device("cpu")
            self._links[group] = Link(group, own)
        return self._links[group]

    def settle_before_forward(self, module: nn.Module, inputs: Any) -> None:
        """End the step before; the model calls this before its forward pass."""
        if torch.is_grad_enabled():
            self._settle()

    def _settle(self) -> None:
        """Make what was staged count, or forget it where a value was not finite."""
        if self._seen and not self._flagged:
            self._states |= self._staged
            for name in self._staged:
                self._loaded.pop(name, None)
            self.steps += 1
        self._staged.clear()
        self._seen.clear()
        self._flagged = False


def _check(name: str, received: list[frames.Frame]) -> None:
    for frame in received:
        if frame.flags & frames.FAILED:
            message = frame.payloads[0].tobytes().decode(errors="replace")
            raise GradientError(f"rank {frame.sender} could not compress: {message}")
    for frame in received:
        if (frame.schema, frame.step) != (received[0].schema, received[0].step):
            raise GradientError(
                f"{name}: rank {frame.sender} compresses another gradient, by another compressor "
                "or at another step than rank 0; build the model alike and load the same checkpoint"
            )


def _reduce_as_it_is(out: torch.Tensor, given: torch.Tensor, group: Any, op: Any) -> None:
    # torch 2.13 renamed it and deprecated the old name
    reduce: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    reduce(out, given, group=group, op=op)


def _torch_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if coded_dtype(dtype) == np.float64 else torch.float32


def _factor(op: Any, world: int) -> float:
    if op == dist.ReduceOp.AVG:
        return 1.0 / world
    if op == dist.ReduceOp.SUM:
        return 1.0
    raise GradientError(
        f"gradients are averaged or summed; FSDP asks for {op}: leave set_gradient_divide_factor"
    )
